"""Listing of folders.

Loops of links end, and a folder that the system refuses to list is a `DataError` that names it.
Files and folders that systems and programs leave beside users' files are not listed: `is_junk`.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePath

from farther.errors import DataError, shorten
from farther.tables.endings import has_ending, refuse_twins, with_lower_ending
from farther.tables.files import is_folder, is_present, is_unicode, refuse_broken_link

#: Names, in lower case, of files and folders that are no user's: of macOS, Windows, Linux, Jupyter,
#: and storage of Synology and QNAP.
JUNK = frozenset(
    {
        "__macosx",
        ".ds_store",
        ".appledouble",
        ".apdisk",
        ".fseventsd",
        ".localized",
        ".spotlight-v100",
        ".temporaryitems",
        ".trashes",
        "icon\r",
        "thumbs.db",
        "ehthumbs.db",
        "desktop.ini",
        "$recycle.bin",
        "system volume information",
        ".directory",
        "lost+found",
        ".ipynb_checkpoints",
        "@eadir",
        "#recycle",
        "#snapshot",
        ".@__thumb",
        "@recycle",
    }
)
#: Beginning of the names of files with which macOS keeps attributes of other files (AppleDouble).
APPLE_DOUBLE = "._"


def is_junk(name: str) -> bool:
    """Whether systems or programs leave files or folders of this name beside users' files.

    >>> is_junk("._a.jpg"), is_junk("Thumbs.db"), is_junk("a.jpg")
    (True, True, False)
    """
    return name.startswith(APPLE_DOUBLE) or name.lower() in JUNK


def resolved(path: str | Path) -> Path:
    """The path behind links, as `Path.resolve`.

    A loop of links stays as it is, and fails where it is read.
    """
    return Path(os.path.realpath(path))


@dataclass(frozen=True)
class _Folder:
    """A folder to be listed.

    Args:
        path: Its path.
        real_path: The path behind links.
    """

    path: str
    real_path: str


def files_below(folder: str | Path, endings: Collection[str] | None = None) -> Iterator[Path]:
    """The files in a folder and its sub-folders, links to folders included.

    A link to a folder above it is not followed.

    Args:
        folder: The folder.
        endings: Yield only files that have one of these, in any case; all when None.

    Raises:
        DataError: a folder cannot be listed, or a link that may have led to a folder (its name has
            no suffix) is broken. Broken links to files are among the files, and refused where they
            are read.
    """
    stack = [_Folder(str(folder), os.path.realpath(folder))]
    visited = set[str]()
    while stack:
        current = stack.pop()
        visited.add(current.real_path)
        subfolders = []
        for entry in entries(current.path):
            if _is_folder(entry):
                real_path = f"{current.real_path}/{entry.name}"
                if entry.is_symlink():
                    real_path = os.path.realpath(entry.path)
                subfolders.append(_Folder(entry.path, real_path))
                continue
            is_link = entry.is_symlink() and not PurePath(entry.name).suffix
            if is_link and not _is_hidden(entry):
                refuse_broken_link(entry.path)
            if endings is None or has_ending(entry.name, endings):
                yield Path(entry.path)
        stack += [inner for inner in reversed(subfolders) if inner.real_path not in visited]


def linked_folders(folder: str | Path) -> Iterator[Path]:
    """The links to folders in a folder and its sub-folders; these links are not followed.

    Raises:
        DataError: a folder cannot be listed.
    """
    stack = [str(folder)]
    while stack:
        for entry in entries(stack.pop()):
            if entry.is_dir(follow_symlinks=False):
                stack.append(entry.path)
            elif entry.is_symlink() and _is_folder(entry):
                yield Path(entry.path)


def refuse_linked_folders(folder: str | Path) -> None:
    """Refuses a dependency of a stage with links to folders: DVC does not follow them.

    A folder that is a link itself is followed.

    Raises:
        DataError: names the first link and what it leads to.
    """
    for link in linked_folders(folder):
        target = shorten(os.readlink(link))  # noqa: PTH115
        raise DataError(
            f"a link to the folder {target}, where DVC does not see changes: make the folder a "
            "dataset of its own with this `root`, or copy it here",
            file=link,
        )


def listed(folder: str | Path, pattern: str) -> list[Path]:
    """The files and folders that match a pattern, as in `matching`, sorted.

    Raises:
        DataError: a folder cannot be listed, or a name is not UTF-8.
    """
    return [in_unicode(path) for path in matching(folder, pattern)]


def matching(folder: str | Path, pattern: str) -> list[Path]:
    """The files and folders that match a pattern, sorted; endings match in any case.

    Without hidden ones, whose names begin with a dot, and those below hidden folders. `Path.glob`
    differs between versions of Python: folders that cannot be listed, `**` at the end.

    Args:
        folder: The folder.
        pattern: Names with `*`, `?`, `[ab]`, and `**` for any folders.

    Raises:
        DataError: a folder cannot be listed.
    """
    parts = list(PurePath(pattern).parts)
    if not parts or parts[0] == "/":
        raise DataError(f"not a pattern of files below the folder: {shorten(pattern)}", file=folder)
    if parts[-1] == "**":
        parts.append("*")
    paths = [str(folder)]
    for part in parts:
        matches: dict[str, None] = {}
        for path in paths:
            if part == "**":
                matches.update(dict.fromkeys(_folders_below(path)))
            else:
                matches.update(dict.fromkeys(_matching_entries(path, part)))
        paths = list(matches)
    return sorted(Path(path) for path in paths)


def _folders_below(folder: str) -> Iterator[str]:
    """A folder and those below it; links are not followed, and hidden folders left out."""
    stack = [folder]
    while stack:
        current = stack.pop()
        yield current
        visible = [entry for entry in entries(current) if not _is_hidden(entry)]
        stack += [entry.path for entry in visible if entry.is_dir(follow_symlinks=False)]


def _matching_entries(folder: str, name: str) -> list[str]:
    """The entries of a folder whose name matches."""
    if name.startswith("."):
        return []
    if not glob.has_magic(name):
        path = os.path.join(folder, name)  # noqa: PTH118
        if os.path.lexists(path) or is_present(path):
            return [path]
        return []
    visible = [entry for entry in entries(folder) if not _is_hidden(entry)]
    return [entry.path for entry in visible if _fits(entry.name, name)]


def _fits(name: str, pattern: str) -> bool:
    """Whether a name fits a pattern, and its ending that of the pattern in any case."""
    _, dot, ending = pattern.rpartition(".")
    if dot and not glob.has_magic(ending) and "]" not in ending:
        return fnmatchcase(with_lower_ending(name), with_lower_ending(pattern))
    return fnmatchcase(name, pattern)


def find_file(path: Path) -> Path:
    """The file at a path, whose ending may be in another case; the path where there is none.

    Raises:
        DataError: there are two, or the folder cannot be listed.
    """
    if not path.suffix or is_folder(path):
        return path
    name = with_lower_ending(path.name)
    files = []
    for entry in entries(path.parent):
        if with_lower_ending(entry.name) == name and not _is_folder(entry):
            files.append(path.with_name(entry.name))
    refuse_twins(files)
    if not files:
        return path
    return files[0]


def entries(folder: str | Path) -> list[os.DirEntry[str]]:
    """The entries of a folder without junk, sorted; none where it does not exist.

    Raises:
        DataError: the folder cannot be listed, or is a broken link.
    """
    try:
        with os.scandir(folder) as iterator:
            return sorted((entry for entry in iterator if not is_junk(entry.name)), key=_name)
    except (FileNotFoundError, NotADirectoryError):
        refuse_broken_link(folder)
        return []
    except OSError as error:
        refuse_broken_link(folder)
        raise DataError(f"the folder cannot be listed: {error.strerror}", file=folder) from None


def in_unicode(path: Path) -> Path:
    """The path of a file that a table will name, unchanged.

    Raises:
        DataError: it is not UTF-8.
    """
    if not is_unicode(str(path)):
        raise DataError("the name is not UTF-8: rename it", file=path)
    return path


def _name(entry: os.DirEntry[str]) -> str:
    return entry.name


def _is_hidden(entry: os.DirEntry[str]) -> bool:
    return entry.name.startswith(".")


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a loop of links
        return False
