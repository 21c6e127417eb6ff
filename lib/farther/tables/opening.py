"""Opening of regular files, and the presence of optional ones; errors name the file."""

from __future__ import annotations

import os
import stat
from io import BufferedReader, FileIO
from pathlib import Path
from typing import Any

from farther.errors import DataError, shorten


def regular_file(path: str | Path, absent: str = "the file does not exist") -> Path:
    """The path of a file that exists: not a folder, a FIFO, or a loop of links.

    Raises:
        DataError: there is none (with the message `absent`), it is something else, or its name is
            too long.
    """
    path = Path(path)
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise DataError("not a file", file=path)
    except (FileNotFoundError, NotADirectoryError):
        raise DataError(absent, file=path) from None
    except (OSError, ValueError) as error:  # a loop of links, a name that is too long or has a NUL
        raise _unreadable(path, error) from None
    return path


def open_binary(path: str | Path, absent: str = "the file does not exist") -> BufferedReader:
    """A file, opened to read its bytes; errors as in `regular_file`."""
    try:
        return BufferedReader(_Raw(regular_file(path, absent)), 2**16)
    except OSError as error:
        raise _unreadable(path, error) from None


def is_present(path: str | Path) -> bool:
    """Whether a file or folder that users may leave out exists.

    A broken link is an error, not an absent file, which would be ignored silently.

    Raises:
        DataError: the path, or a folder that it lies in, is a link that leads nowhere or a loop of
            links; or the path cannot be looked up (no permission, the name is too long).
    """
    path = Path(path)
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        refuse_broken_link(path)
        return False
    except (OSError, ValueError) as error:
        refuse_broken_link(path)
        raise _unreadable(path, error) from None
    return True


def is_file(path: str | Path) -> bool:
    """Whether an optional file exists, and is not a folder; errors as in `is_present`."""
    return is_present(path) and Path(path).is_file()


def is_folder(path: str | Path) -> bool:
    """Whether an optional folder exists, and is a folder; errors as in `is_present`."""
    return is_present(path) and Path(path).is_dir()


def refuse_broken_link(path: str | Path) -> None:
    """Refuses a path that is a broken link, or lies in a folder that is one.

    Raises:
        DataError: names the link and what it leads to.
    """
    path = Path(path)
    for place in (path, *path.parents):
        if not os.path.lexists(place):
            continue
        # `Path.exists` may raise errors, and `Path.readlink` changes the text.
        if place.is_symlink() and not os.path.exists(place):  # noqa: PTH110
            target = shorten(os.readlink(place))  # noqa: PTH115
            problem = f"a link to {target} that leads nowhere: correct the link, or delete it"
            raise DataError(problem, file=place)
        return


class _Raw(FileIO):
    """A file whose errors while it is read, such as those of a damaged disk, name it."""

    def readinto(self, buffer: Any) -> int | None:
        try:
            return super().readinto(buffer)
        except OSError as error:
            raise _unreadable(str(self.name), error) from None

    def readall(self) -> bytes:
        try:
            return super().readall()
        except OSError as error:
            raise _unreadable(str(self.name), error) from None


def _unreadable(path: str | Path, error: Exception) -> DataError:
    return DataError(f"the file cannot be read: {getattr(error, 'strerror', error)}", file=path)
