"""Reads every object that this commit needs, on a remote or in the cache, and names those that are damaged or lost.

Usage: stages/check_objects.py [REMOTE | --cache] [--remove]

Reads dvc.yaml, dvc.lock and the objects. Prints a line for each fault and ends with status 1 if there is any. With
`--remove`, what is damaged is deleted: `dvc push` and `dvc pull` go by names only, so they would never replace it.
"""

import argparse
import hashlib
import json
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from dvc.exceptions import DvcException
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
        """Whether a whole output is not there, which is no damage: a part of the outputs may be pushed, or pulled."""
        return self.digest is None and self.wanted.folder is None

    def __str__(self) -> str:
        what = "is lost" if self.digest is None else f"is damaged: its MD5 is {self.digest}"
        return f"{self.wanted.path}: object {self.wanted.oid} {what}"


def outputs(repo: Repo) -> list[Wanted]:
    """What the stages of this commit keep in the cache."""
    kept = (output for output in repo.index.outs if output.use_cache and output.hash_info)
    return [Wanted(str(output), output.hash_info.value) for output in kept]


def read(odb: Any, wanted: Wanted) -> Found:
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


def read_all(odb: Any, wanted: list[Wanted]) -> Iterator[Found]:
    """Reads outputs, then the files of those that are folders."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        files: list[Wanted] = []
        for found in pool.map(lambda one: read(odb, one), wanted):
            files += found.files
            yield found
        yield from pool.map(lambda one: read(odb, one), files)


def report(found: list[Found]) -> list[Found]:
    """Prints what was read, and a line for each fault; returns the faults."""
    faults = [one for one in found if not one.is_whole and not one.is_absent]
    for fault in faults:
        print(fault)
    absent = sum(one.is_absent for one in found)
    megabytes = sum(one.size for one in found) / 1e6
    print(f"{len(found) - absent} files read ({megabytes:.1f} MB). Faults: {len(faults)}. Outputs not there: {absent}.")
    return faults


def remove(odb: Any, faults: list[Found]) -> None:
    """Deletes damaged objects, and the lists of their folders: to DVC, a list says that all in it is there."""
    damaged = {fault.wanted.oid for fault in faults if fault.digest is not None}
    for oid in sorted(damaged | {fault.wanted.folder for fault in faults if fault.wanted.folder}):
        odb.fs.remove(odb.oid_to_path(oid))


def main() -> int:
    """Checks what the command line names; returns the exit status."""
    parser = argparse.ArgumentParser(
        description="Names objects of a DVC remote, or of the cache, that are damaged or lost."
    )
    place = parser.add_mutually_exclusive_group()
    place.add_argument("remote", nargs="?", help="a remote; the default one, if left out")
    place.add_argument("--cache", action="store_true", help="this machine's cache instead of a remote")
    parser.add_argument("--remove", action="store_true", help="delete what is damaged, so that it can be replaced")
    options = parser.parse_args()
    with Repo() as repo:
        odb = repo.cache.local if options.cache else repo.cloud.get_remote_odb(options.remote)
        faults = report(list(read_all(odb, outputs(repo))))
    if faults and options.remove:
        remove(odb, faults)
        cache, remote = "dvc pull, delete these files in artifacts, dvc checkout", "dvc push, where a good cache is"
        print(f"Removed. Now: {cache if options.cache else remote}")
    elif faults:
        print("To replace them, say this again with --remove first")
    return 1 if faults else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except DvcException as error:
        sys.exit(f"stages/check_objects.py: {error}")
