"""`farther check-objects`: the objects of a DVC remote or cache, read whole and compared with their digests."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from farther.errors import DataError, ParameterError

if TYPE_CHECKING:
    from dvc.repo import Repo

BLOCK = 1 << 20
AT_ONCE = 8


@dataclass(frozen=True)
class Wanted:
    """A file or folder of the pipeline, the object that holds it, and the folder's object if a folder lists it."""

    path: str
    oid: str
    folder: str | None = None


@dataclass(frozen=True)
class Found:
    """What is there for it: the MD5 of the bytes there, None if nothing is there; and the files that it lists."""

    wanted: Wanted
    digest: str | None
    size: int = 0
    files: tuple[Wanted, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether the bytes are those that the stage wrote."""
        return self.digest == self.wanted.oid.removesuffix(".dir")

    @property
    def is_absent(self) -> bool:
        """Whether a whole output is absent, which is not a fault: it may not have been pushed or pulled."""
        return self.digest is None and self.wanted.folder is None

    def __str__(self) -> str:
        what = "is lost" if self.digest is None else f"is damaged: its MD5 is {self.digest}"
        return f"{self.wanted.path}: object {self.wanted.oid} {what}"


def check_objects(
    remote: Annotated[
        str | None, typer.Argument(metavar="REMOTE", help="Name of a remote; by default the default one.")
    ] = None,
    cache: Annotated[bool, typer.Option("--cache", help="Check this machine's cache instead of a remote.")] = False,
    remove: Annotated[
        bool, typer.Option("--remove", help="Delete damaged objects, so that DVC replaces them.")
    ] = False,
) -> int:
    """Find damaged and lost objects on a DVC remote.

    Reads every object that this commit needs and compares its MD5 with its name. `dvc push` and `dvc pull` compare
    names only, so they never replace a damaged object: --remove deletes it. The exit status is 1 if there is a fault.

    \b
    Examples:
      farther check-objects                 # the default remote
      farther check-objects backup --remove
      farther check-objects --cache
    """
    if remote and cache:
        raise ParameterError("name a remote or give --cache, not both")
    from dvc.exceptions import DvcException
    from dvc.repo import Repo

    try:
        with Repo() as repo:
            odb = repo.cache.local if cache else repo.cloud.get_remote_odb(remote)
            faults = _report(list(_read_all(odb, _outputs(repo))))
    except DvcException as error:
        raise DataError(str(error)) from None
    if faults and remove:
        _remove(odb, faults)
        here = "dvc pull, delete these files in artifacts, dvc checkout"
        print(f"Removed. Now run: {here if cache else 'dvc push, where a good cache is'}")
    elif faults:
        print("To replace them, run this again with --remove")
    return 1 if faults else 0


def _outputs(repo: Repo) -> list[Wanted]:
    """What the stages of this commit keep in the cache."""
    kept = (output for output in repo.index.outs if output.use_cache and output.hash_info)
    return [Wanted(str(output), output.hash_info.value) for output in kept]


def _read(odb: Any, wanted: Wanted) -> Found:
    """Reads one object whole, a block at a time; a folder's is kept, as it lists files."""
    digest, size, listing = hashlib.md5(usedforsecurity=False), 0, []
    try:
        with odb.fs.open(odb.oid_to_path(wanted.oid), "rb") as file:
            while block := file.read(BLOCK):
                digest.update(block)
                size += len(block)
                if wanted.oid.endswith(".dir"):
                    listing.append(block)
    except FileNotFoundError:
        return Found(wanted, digest=None)
    found = Found(wanted, digest.hexdigest(), size)
    if not listing or not found.is_whole:
        return found
    lines = json.loads(b"".join(listing))
    files = tuple(Wanted(f"{wanted.path}/{line['relpath']}", line["md5"], folder=wanted.oid) for line in lines)
    return Found(wanted, found.digest, size, files)


def _read_all(odb: Any, wanted: list[Wanted]) -> Iterator[Found]:
    """Reads outputs, then the files of those that are folders."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        files: list[Wanted] = []
        for found in pool.map(lambda one: _read(odb, one), wanted):
            files += found.files
            yield found
        yield from pool.map(lambda one: _read(odb, one), files)


def _report(found: list[Found]) -> list[Found]:
    """Prints what was read, and a line for each fault; returns the faults."""
    faults = [one for one in found if not one.is_whole and not one.is_absent]
    for fault in faults:
        print(fault)
    absent = sum(one.is_absent for one in found)
    megabytes = sum(one.size for one in found) / 1e6
    print(f"{len(found) - absent} files read ({megabytes:.1f} MB). Faults: {len(faults)}. Outputs not there: {absent}.")
    return faults


def _remove(odb: Any, faults: list[Found]) -> None:
    """Deletes damaged objects and the lists of their folders: where a list exists, DVC takes its files for complete."""
    damaged = {fault.wanted.oid for fault in faults if fault.digest is not None}
    for oid in sorted(damaged | {fault.wanted.folder for fault in faults if fault.wanted.folder}):
        odb.fs.remove(odb.oid_to_path(oid))
