"""What folders hold: loops of links end, and what the system refuses to list is a `DataError` that names it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from farther.errors import DataError, shorten
from farther.tables.files import is_unicode

#: Most characters of a path in a message; one that is too long for the system has thousands.
SHOWN = 1_000


def resolved(path: str | Path) -> Path:
    """The path behind links, as `Path.resolve`; a loop of links stays as it is, to fail where it is read."""
    return Path(os.path.realpath(path))


def files_below(folder: str | Path) -> Iterator[Path]:
    """The files in a folder and its sub-folders, links to folders included; a link to a folder above it ends there.

    Raises:
        DataError: a folder cannot be listed.
    """
    waiting = [(str(folder), os.path.realpath(folder))]
    seen = set[str]()
    while waiting:
        place, real = waiting.pop()
        seen.add(real)
        inner = []
        for entry in entries(place):
            if _is_folder(entry):
                path = os.path.realpath(entry.path) if entry.is_symlink() else f"{real}/{entry.name}"
                inner.append((entry.path, path))
            else:
                yield Path(entry.path)
        waiting += [one for one in reversed(inner) if one[1] not in seen]


def listed(folder: str | Path, pattern: str) -> list[Path]:
    """The files and folders that match a pattern, sorted, without hidden ones, whose names begin with a dot.

    Raises:
        DataError: a folder cannot be listed, or a name is not UTF-8.
    """
    try:
        found = sorted(Path(folder).glob(pattern))
        shown = (path for path in found if not any(n.startswith(".") for n in path.relative_to(folder).parts))
        return [in_unicode(path) for path in shown]
    except OSError as error:
        raise _unlisted(error.filename or folder, error) from None
    except ValueError as error:  # not a pattern, or a name that no file can have
        raise DataError(f"not a pattern of files: {shorten(pattern)}: {error}", file=folder) from None
    except RecursionError:
        raise DataError("the folder cannot be listed: hundreds of folders in each other", file=folder) from None


def entries(folder: str | Path) -> list[os.DirEntry[str]]:
    """The entries of a folder, sorted; none where it does not exist. Errors as in `files_below`."""
    try:
        with os.scandir(folder) as found:
            return sorted(found, key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise _unlisted(folder, error) from None


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


def _unlisted(folder: str | Path, error: OSError) -> DataError:
    path = str(folder)
    shown = path if len(path) <= SHOWN else f"{path[:SHOWN]}…"
    return DataError(f"the folder cannot be listed: {error.strerror}", file=shown)
