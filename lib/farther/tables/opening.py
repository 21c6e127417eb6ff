"""Regular files, opened to read their bytes; every error names the file."""

from __future__ import annotations

import stat
from io import BufferedReader, FileIO
from pathlib import Path
from typing import Any

from farther.errors import DataError


def regular_file(path: str | Path, absent: str = "the file does not exist") -> Path:
    """The path of a file that exists: not a folder, a FIFO, or a loop of links.

    Raises:
        DataError: there is none (with the message `absent`), it is something else, or its name is too long.
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


class _Raw(FileIO):
    """A file whose errors while it is read, as of a damaged disk, name it."""

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
