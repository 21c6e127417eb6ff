"""`farther remote check`: the objects of a DVC remote or cache, read whole and compared with their digests."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from farther.command.output import next_step
from farther.command.project import argument
from farther.errors import DataError, ParameterError
from farther.terminal import say

if TYPE_CHECKING:
    from dvc.repo import Repo

BLOCK = 1 << 20
AT_ONCE = 8


@dataclass(frozen=True)
class StoredObject:
    """A file or folder of the pipeline, and what is stored for it.

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
        """Whether a whole output is absent, which is not a fault: it may not have been pushed or pulled."""
        return self.digest is None and self.folder is None

    def __str__(self) -> str:
        what = "is lost" if self.digest is None else f"is damaged: its MD5 is {self.digest}"
        return f"{self.path}: object {self.oid} {what}"


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
        here = "dvc pull, delete these files in artifacts, dvc checkout"
        next_step(here if cache else "dvc push, on a machine with an intact cache")
    elif faults:
        next_step("run it again with --remove, which deletes the damaged objects")
    return 1 if faults else 0


def _outputs(repo: Repo) -> list[StoredObject]:
    """What the stages of this commit keep in the cache."""
    kept = (output for output in repo.index.outs if output.use_cache and output.hash_info)
    return [StoredObject(str(output), output.hash_info.value) for output in kept]


def _read(odb: Any, asked: StoredObject) -> StoredObject:
    """Reads one object whole, a block at a time; a folder's is kept, as it lists files."""
    from farther.tables.documents import parse_json

    digest = hashlib.md5(usedforsecurity=False)
    size = 0
    listing = []
    try:
        with odb.fs.open(odb.oid_to_path(asked.oid), "rb") as file:
            while block := file.read(BLOCK):
                digest.update(block)
                size += len(block)
                if asked.oid.endswith(".dir"):
                    listing.append(block)
    except FileNotFoundError:
        return asked
    found = replace(asked, digest=digest.hexdigest(), size=size)
    if not listing or not found.is_whole:
        return found
    lines = parse_json(b"".join(listing), asked.path)
    return replace(
        found,
        files=tuple(
            StoredObject(f"{asked.path}/{line['relpath']}", line["md5"], folder=asked.oid)
            for line in lines
        ),
    )


def _read_all(odb: Any, outputs: list[StoredObject]) -> list[StoredObject]:
    """Reads outputs, then the files of those that are folders."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = list(pool.map(partial(_read, odb), outputs))
        return found + list(
            pool.map(partial(_read, odb), (file for one in found for file in one.files))
        )


def _report(found: list[StoredObject]) -> list[StoredObject]:
    """Prints what was read, and a line for each fault; returns the faults."""
    faults = [one for one in found if not one.is_whole and not one.is_absent]
    for fault in faults:
        say(fault)
    absent = sum(one.is_absent for one in found)
    megabytes = sum(one.size for one in found) / 1e6
    say(
        f"{len(found) - absent} files read ({megabytes:.1f} MB). Faults: {len(faults)}. Missing outputs: {absent}."
    )
    return faults


def _remove(odb: Any, faults: list[StoredObject]) -> None:
    """Deletes damaged objects and the lists of their folders: where a list exists, DVC takes its files for complete."""
    damaged = {fault.oid for fault in faults if fault.digest is not None}
    for oid in sorted(damaged | {fault.folder for fault in faults if fault.folder}):
        odb.fs.remove(odb.oid_to_path(oid))
