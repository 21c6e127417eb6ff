"""`farther remote check`: objects of a DVC remote or cache, compared with their MD5 digests."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from farther.command.exit_status import FINDINGS, FINE
from farther.command.output import next_step
from farther.command.project import argument
from farther.errors import DataError, FartherError, ParameterError, first_line
from farther.terminal import say, working

if TYPE_CHECKING:
    from dvc.repo import Repo

#: Bytes that are read at once.
BLOCK = 1 << 20
#: Statuses of HTTP by which a server says that it has no such file.
NOT_THERE = (404, 410)
#: Objects that are read at the same time.
THREADS = 8


@dataclass(frozen=True)
class StoredObject:
    """A file or folder of the pipeline, and the object that is stored for it.

    Args:
        path: Its path.
        oid: Name of its object: an MD5, with `.dir` after it for a folder.
        folder: The folder's object, where a folder lists it.
        digest, size: MD5 and number of the bytes that were read; None where there are none.
        files: The files that it lists.
    """

    path: str
    oid: str
    folder: str | None = None
    digest: str | None = None
    size: int = 0
    files: tuple[StoredObject, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether the bytes are those that the stage wrote."""
        return self.digest == self.oid.removesuffix(".dir")

    @property
    def is_absent(self) -> bool:
        """Whether an output is absent as a whole.

        It is not a fault: the output may not have been pushed or pulled.
        """
        return self.digest is None and self.folder is None

    def __str__(self) -> str:
        if self.digest is None:
            fault = "is lost"
        else:
            fault = f"is damaged: its MD5 is {self.digest}"
        return f"{self.path}: object {self.oid} {fault}"


def check_objects(
    remote: Annotated[
        str | None, argument("REMOTE", "Name of a remote; by default the default one.")
    ] = None,
    cache: Annotated[
        bool, typer.Option("--cache", help="Check this machine's cache instead of a remote.")
    ] = False,
    remove: Annotated[
        bool, typer.Option("--remove", help="Delete damaged objects, so that DVC replaces them.")
    ] = False,
) -> int:
    """Find damaged and lost objects on a DVC remote.

    Reads every object that this commit needs and compares its MD5 with its name. `dvc push` and
    `dvc pull` compare names only, so they never replace a damaged object: --remove deletes it. The
    exit status is 1 if there is a fault, 2 if the remote cannot be read.

    \b
    Examples:
      farther remote check                 # the default remote
      farther remote check backup --remove
      farther remote check --cache
    """
    if remote and cache:
        raise ParameterError("name a remote or give --cache, not both")
    from dvc.repo import Repo

    name = "the cache"
    if not cache:
        name = f"the remote {remote!r}" if remote else "the default remote"
    with _errors_of(name), Repo() as repo:
        outputs = _outputs(repo)
        odb = repo.cache.local if cache else repo.cloud.get_remote_odb(remote)
        with working(f"reading {name}"):
            objects = _read_all(odb, outputs)
    if not cache and outputs and all(stored.is_absent for stored in objects):
        problem = f"{name} ({odb.path}) has none of the {len(outputs)} outputs of this commit"
        raise DataError(f"{problem}: its address is wrong, or nothing was pushed (dvc push)")
    faults = _report(objects)
    if faults and remove:
        with _errors_of(name):
            _remove(odb, faults)
        say("Removed.")
        if cache:
            next_step("dvc pull, delete these files in artifacts, dvc checkout")
        else:
            next_step("dvc push, on a machine with an intact cache")
    elif faults:
        next_step("run it again with --remove, which deletes the damaged objects")
    return FINDINGS if faults else FINE


@contextmanager
def _errors_of(name: str) -> Iterator[None]:
    """Raises a DataError for any error of the library by which a remote is read.

    Args:
        name: The remote, for the message.
    """
    from dvc.exceptions import DvcException

    try:
        yield
    except (DvcException, FartherError) as error:
        raise DataError(str(error)) from error
    except Exception as error:
        problem = f"{name} cannot be used: {_reason(error)}. Address and access are in .dvc/config"
        raise DataError(f"{problem} and .dvc/config.local; `dvc remote list` shows them") from error


def _reason(error: BaseException) -> str:
    """Why a remote cannot be read, in one line, without the number of an error."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    text = first_line(error) if isinstance(error, Exception) else str(error)
    if isinstance(error, ConnectionError) or text == type(error).__name__:
        return text
    return f"{type(error).__name__}: {text}"


def _cause_of_absence(error: FileNotFoundError) -> BaseException | None:
    """Why an object was not found although it may be there; None where it is not there.

    File systems of HTTP say that a file does not exist where a server cannot be reached or refuses.
    """
    cause = error.__cause__
    status = getattr(cause, "status", None)
    if status is not None:
        return None if status in NOT_THERE else cause
    if isinstance(cause, OSError) and not isinstance(cause, FileNotFoundError):
        return cause
    return None


def _outputs(repo: Repo) -> list[StoredObject]:
    """The outputs of this commit's stages that DVC keeps in the cache."""
    outputs = []
    for output in repo.index.outs:
        if output.use_cache and output.hash_info:
            outputs.append(StoredObject(str(output), output.hash_info.value))
    return outputs


def _read(odb: Any, stored: StoredObject) -> StoredObject:
    """Reads one object, a block at a time; returns it with its digest, and a folder's files."""
    from farther.tables.documents import parse_json

    is_folder = stored.oid.endswith(".dir")
    digest = hashlib.md5(usedforsecurity=False)
    size = 0
    listing = []
    try:
        with odb.fs.open(odb.oid_to_path(stored.oid), "rb") as file:
            while block := file.read(BLOCK):
                digest.update(block)
                size += len(block)
                if is_folder:
                    listing.append(block)
    except FileNotFoundError as error:
        cause = _cause_of_absence(error)
        if cause is not None:
            raise ConnectionError(_reason(cause)) from error
        return stored
    stored = replace(stored, digest=digest.hexdigest(), size=size)
    if not listing or not stored.is_whole:
        return stored
    files = []
    for entry in parse_json(b"".join(listing), stored.path):
        path = f"{stored.path}/{entry['relpath']}"
        files.append(StoredObject(path, entry["md5"], folder=stored.oid))
    return replace(stored, files=tuple(files))


def _read_all(odb: Any, outputs: list[StoredObject]) -> list[StoredObject]:
    """Reads outputs, then the files of those that are folders."""
    read = partial(_read, odb)
    with ThreadPoolExecutor(THREADS) as pool:
        try:
            objects = list(pool.map(read, outputs))
            files = [file for output in objects for file in output.files]
            return objects + list(pool.map(read, files))
        except BaseException:  # Ctrl-C too: the others are not waited for
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _report(objects: list[StoredObject]) -> list[StoredObject]:
    """Prints a line for each fault, and how much was read; returns the faults."""
    faults = [stored for stored in objects if not stored.is_whole and not stored.is_absent]
    for fault in faults:
        say(fault)
    absent = sum(stored.is_absent for stored in objects)
    megabytes = sum(stored.size for stored in objects) / 1e6
    say(
        f"{len(objects) - absent} files read ({megabytes:.1f} MB). "
        f"Faults: {len(faults)}. Missing outputs: {absent}."
    )
    return faults


def _remove(odb: Any, faults: list[StoredObject]) -> None:
    """Deletes damaged objects and the lists of their folders.

    Where a folder's list exists, DVC assumes that all of its files do.
    """
    oids = set()
    for fault in faults:
        if fault.digest is not None:
            oids.add(fault.oid)
        if fault.folder:
            oids.add(fault.folder)
    for oid in sorted(oids):
        odb.fs.remove(odb.oid_to_path(oid))
