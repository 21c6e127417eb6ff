"""`farther remote check`: objects of a DVC remote or cache, compared with their MD5 digests."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from farther.command.exit_status import FINDINGS, FINE
from farther.command.output import next_step
from farther.command.project import argument
from farther.errors import DataError, ParameterError
from farther.terminal import say

if TYPE_CHECKING:
    from dvc.repo import Repo

#: Bytes that are read at once.
BLOCK = 1 << 20
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
    exit status is 1 if there is a fault.

    \b
    Examples:
      farther remote check                 # the default remote
      farther remote check backup --remove
      farther remote check --cache
    """
    if remote and cache:
        raise ParameterError("name a remote or give --cache, not both")
    from dvc.exceptions import DvcException
    from dvc.repo import Repo

    try:
        with Repo() as repo:
            odb = repo.cache.local if cache else repo.cloud.get_remote_odb(remote)
            faults = _report(_read_all(odb, _outputs(repo)))
    except DvcException as error:
        raise DataError(str(error)) from None
    if faults and remove:
        _remove(odb, faults)
        say("Removed.")
        if cache:
            next_step("dvc pull, delete these files in artifacts, dvc checkout")
        else:
            next_step("dvc push, on a machine with an intact cache")
    elif faults:
        next_step("run it again with --remove, which deletes the damaged objects")
    return FINDINGS if faults else FINE


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
    except FileNotFoundError:
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
        objects = list(pool.map(read, outputs))
        files = [file for output in objects for file in output.files]
        return objects + list(pool.map(read, files))


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
