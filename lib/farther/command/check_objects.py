"""`farther remote check`: objects of a DVC remote or cache, compared with their MD5 digests."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from farther.command.dvc_project import (
    FOLDER,
    Output,
    answer,
    cached_outputs,
    object_path,
    settings,
)
from farther.command.exit_status import FINDINGS, FINE
from farther.command.fetched_objects import Fetched, fetch
from farther.command.output import next_step
from farther.command.project import argument
from farther.errors import DataError, ParameterError, choose
from farther.text.terminal import say, working

#: How the URL of a remote begins that is a folder of another one.
BASED_ON_REMOTE = "remote://"
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
        reason: Why there are no bytes, where it is known.
    """

    path: str
    oid: str
    folder: str | None = None
    digest: str | None = None
    size: int = 0
    files: tuple[StoredObject, ...] = ()
    reason: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether the bytes are those that the stage wrote."""
        return self.digest == self.oid.removesuffix(FOLDER)

    @property
    def is_absent(self) -> bool:
        """Whether an output is absent as a whole.

        It is not a fault: the output may not have been pushed or pulled.
        """
        return self.digest is None and self.folder is None and not self.reason

    def __str__(self) -> str:
        if self.digest is not None:
            fault = f"is damaged: its MD5 is {self.digest}"
        elif self.reason:
            fault = f"is lost: {self.reason}"
        else:
            fault = "is lost"
        return f"{self.path}: object {self.oid} {fault}"


@dataclass(frozen=True)
class Store:
    """A remote or the cache.

    Args:
        title: What messages call it.
        address: Its folder or URL.
        remote: Name of the remote; "" for the cache.
    """

    title: str
    address: str
    remote: str = ""

    @property
    def folder(self) -> Path | None:
        """Its folder; None where it is on a server."""
        if "://" in self.address:
            return None
        return Path(self.address)


def check_objects(
    remote: Annotated[
        str | None, argument("REMOTE", "Name of a remote; by default the default one.")
    ] = None,
    cache: Annotated[
        bool, typer.Option("--cache", help="Check this machine's cache instead of a remote.")
    ] = False,
    remove: Annotated[
        bool,
        typer.Option(
            "--remove", help="Delete damaged objects of a folder, so that DVC replaces them."
        ),
    ] = False,
) -> int:
    """Find damaged and lost objects on a DVC remote.

    Reads every object that this commit needs and compares its MD5 with its name. `dvc push` and
    `dvc pull` compare names only, so they never replace a damaged object: --remove deletes it from
    a cache or a remote that is a folder; of other remotes, the addresses are printed. The exit
    status is 1 if there is a fault, 2 if the remote cannot be read.

    \b
    Examples:
      farther remote check                 # the default remote
      farther remote check backup --remove
      farther remote check --cache
    """
    if remote and cache:
        raise ParameterError("name a remote or give --cache, not both")
    with working("reading the objects"):
        outputs = cached_outputs(pushed=not cache)
        if cache:
            store = Store("the cache", answer("cache", "dir"))
            objects = _read_folder(Path(store.address), outputs)
        else:
            options = settings()
            store = _remote(remote, options)
            objects = _read_remote(store, options, outputs)
    if store.remote and objects and all(stored.is_absent for stored in objects):
        has_none = f"has none of the {len(objects)} outputs of this commit"
        causes = "its address is wrong, or nothing was pushed (dvc push)"
        if store.address.startswith("http"):  # DVC takes what it cannot reach there as absent
            causes = f"the server does not answer, {causes}"
        raise DataError(f"{store.title} ({store.address}) {has_none}: {causes}")
    faults = _report(objects)
    if not faults:
        return FINE
    if store.folder is None:
        _print_addresses(store, faults)
    elif remove:
        for name in _to_delete(faults):
            (store.folder / name).unlink(missing_ok=True)
        say("Removed.")
    else:
        next_step("run it again with --remove, which deletes the damaged objects")
        return FINDINGS
    if store.remote:
        next_step("dvc push, on a machine with an intact cache")
    else:
        next_step("dvc pull, delete these files in artifacts, dvc checkout")
    return FINDINGS


def _remote(name: str | None, options: dict[str, str]) -> Store:
    """The remote that a user names, or the default one.

    Args:
        name: Its name.
        options: The project's settings.
    """
    addresses = {}
    for option, value in options.items():
        if option.startswith("remote.") and option.endswith(".url"):
            addresses[option.removeprefix("remote.").removesuffix(".url")] = value
    default = options.get("core.remote", "")
    if not name and not default:
        raise ParameterError(
            "no default remote: name one, or add one with `dvc remote add --default NAME URL`"
        )
    title = f"the remote {name!r}" if name else f"the default remote {default!r}"
    known = choose("remote", name or default, addresses, listed_by="dvc remote list")
    address = addresses[known]
    while address.startswith(BASED_ON_REMOTE):
        other, _, path = address.removeprefix(BASED_ON_REMOTE).partition("/")
        address = f"{addresses[choose('remote', other, addresses)]}/{path}"
    return Store(title, address, known)


def _read_remote(
    store: Store, options: dict[str, str], outputs: Sequence[Output]
) -> list[StoredObject]:
    """Reads the objects of outputs from a remote.

    Args:
        store: The remote.
        options: The project's settings.
        outputs: The outputs.

    Raises:
        DataError: the remote cannot be used.
    """
    if store.folder is not None:
        return _read_folder(store.folder, outputs)
    objects: list[StoredObject] = []
    try:
        for fetched in fetch(store.remote, options, outputs):
            objects += _with_reasons(_read_folder(fetched.cache, fetched.outputs), fetched)
    except DataError as error:
        problem = f"{store.title} cannot be used: {error}. Address and access are in .dvc/config"
        raise DataError(f"{problem} and .dvc/config.local; `dvc remote list` shows them") from error
    return objects


def _with_reasons(objects: Iterable[StoredObject], fetched: Fetched) -> Iterator[StoredObject]:
    """Objects, with the reason where one did not arrive."""
    for stored in objects:
        reason = fetched.reasons.get(stored.oid.removesuffix(FOLDER), "")
        if stored.digest is None and reason:
            yield replace(stored, reason=reason)
        else:
            yield stored


def _read_folder(folder: Path, outputs: Sequence[Output]) -> list[StoredObject]:
    """Reads outputs, then the files of those that are folders.

    Args:
        folder: A folder that is laid out as DVC's cache.
        outputs: The outputs.
    """
    read = partial(_read, folder)
    absent = [StoredObject(output.path, output.oid) for output in outputs]
    with ThreadPoolExecutor(THREADS) as pool:
        try:
            objects = list(pool.map(read, absent))
            files = [file for output in objects for file in output.files]
            return objects + list(pool.map(read, files))
        except BaseException:  # Ctrl-C too: the others are not waited for
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _read(folder: Path, stored: StoredObject) -> StoredObject:
    """Reads one object, a block at a time; returns it with its digest, and a folder's files.

    Raises:
        DataError: the object is there and cannot be read.
    """
    from farther.tables.documents import parse_json

    file = folder / object_path(stored.oid)
    digest = hashlib.md5(usedforsecurity=False)
    size = 0
    listing = []
    try:
        with file.open("rb") as opened:
            while block := opened.read(BLOCK):
                digest.update(block)
                size += len(block)
                if stored.oid.endswith(FOLDER):
                    listing.append(block)
    except FileNotFoundError:
        return stored
    except OSError as error:
        raise DataError(error.strerror or str(error), file=file) from error
    stored = replace(stored, digest=digest.hexdigest(), size=size)
    if not listing or not stored.is_whole:
        return stored
    files = []
    for entry in parse_json(b"".join(listing), stored.path):
        path = f"{stored.path}/{entry['relpath']}"
        files.append(StoredObject(path, entry["md5"], folder=stored.oid))
    return replace(stored, files=tuple(files))


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


def _print_addresses(store: Store, faults: list[StoredObject]) -> None:
    """Prints which objects of a server are to be deleted, which no command of DVC does."""
    say("Delete these objects with a tool of the storage:")
    for name in _to_delete(faults):
        say(f"  {store.address}/{name}")


def _to_delete(faults: list[StoredObject]) -> list[str]:
    """Paths of damaged objects and of the lists of their folders.

    Where a folder's list exists, DVC assumes that all of its files do.
    """
    oids = set()
    for fault in faults:
        if fault.digest is not None:
            oids.add(fault.oid)
        if fault.folder:
            oids.add(fault.folder)
    return [object_path(oid) for oid in sorted(oids)]
