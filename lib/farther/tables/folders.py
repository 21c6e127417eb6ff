"""What folders hold: loops of links end, and what the system refuses to list is a `DataError` that names it."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from fnmatch import fnmatchcase
from itertools import chain
from pathlib import Path, PurePath

from farther.errors import DataError, shorten
from farther.tables.files import is_present, is_unicode, refuse_broken_link


def resolved(path: str | Path) -> Path:
    """The path behind links, as `Path.resolve`; a loop of links stays as it is, to fail where it is read."""
    return Path(os.path.realpath(path))


def files_below(folder: str | Path) -> Iterator[Path]:
    """The files in a folder and its sub-folders, links to folders included; a link to a folder above it ends there.

    Raises:
        DataError: a folder cannot be listed, or a link that may have led to a folder (its name has
            no suffix) is broken. Broken links to files are among the files, and refused where they
            are read.
    """
    waiting = [(str(folder), os.path.realpath(folder))]
    seen = set[str]()
    while waiting:
        place, real = waiting.pop()
        seen.add(real)
        inner = []
        for entry in entries(place):
            if _is_folder(entry):
                path = (
                    os.path.realpath(entry.path) if entry.is_symlink() else f"{real}/{entry.name}"
                )
                inner.append((entry.path, path))
                continue
            file = Path(entry.path)
            if entry.is_symlink() and not file.suffix and not entry.name.startswith("."):
                refuse_broken_link(file)
            yield file
        waiting += [one for one in reversed(inner) if one[1] not in seen]


def listed(folder: str | Path, pattern: str) -> list[Path]:
    """The files and folders that match a pattern, as in `matching`, sorted.

    Raises:
        DataError: a folder cannot be listed, or a name is not UTF-8.
    """
    return [in_unicode(path) for path in matching(folder, pattern)]


def matching(folder: str | Path, pattern: str) -> list[Path]:
    """The files and folders that match a pattern (`*`, `?`, `[ab]`, and `**` for any folders), sorted.

    Without hidden ones, whose names begin with a dot, and what is below them. `Path.glob` matches
    otherwise from one Python to the next: folders that cannot be listed, `**` at the end.

    Raises:
        DataError: a folder cannot be listed.
    """
    parts = PurePath(pattern).parts
    if not parts or parts[0] == "/":
        raise DataError(f"not a pattern of files below the folder: {shorten(pattern)}", file=folder)
    places = [str(folder)]
    for part in (*parts, "*") if parts[-1] == "**" else parts:
        found = (_below(place) if part == "**" else _named(place, part) for place in places)
        places = list(dict.fromkeys(chain.from_iterable(found)))
    return sorted(map(Path, places))


def _below(folder: str) -> Iterator[str]:
    """A folder and those below it; links are not followed."""
    waiting = [folder]
    while waiting:
        yield (place := waiting.pop())
        inner = (entry for entry in entries(place) if entry.is_dir(follow_symlinks=False))
        waiting += [entry.path for entry in inner if not entry.name.startswith(".")]


def _named(folder: str, name: str) -> list[str]:
    """The entries of a folder whose name matches."""
    if name.startswith("."):
        return []
    if glob.has_magic(name):
        return [
            entry.path
            for entry in entries(folder)
            if fnmatchcase(entry.name, name) and not entry.name.startswith(".")
        ]
    path = os.path.join(folder, name)  # noqa: PTH118
    if os.path.lexists(path) or is_present(path):
        return [path]
    return []


def entries(folder: str | Path) -> list[os.DirEntry[str]]:
    """The entries of a folder, sorted; none where it does not exist.

    Raises:
        DataError: the folder cannot be listed, or is a broken link.
    """
    try:
        with os.scandir(folder) as found:
            return sorted(found, key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        refuse_broken_link(folder)
        return []
    except OSError as error:
        refuse_broken_link(folder)
        raise DataError(f"the folder cannot be listed: {error.strerror}", file=folder) from None


def in_unicode(path: Path) -> Path:
    """The path of a file that tables are to name.

    Raises:
        DataError: it is not UTF-8.
    """
    if not is_unicode(str(path)):
        raise DataError("the name is not UTF-8: rename it", file=path)
    return path


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a loop of links
        return False
