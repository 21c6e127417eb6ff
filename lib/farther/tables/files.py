"""Files: opened and read within limits, tables of text, paths within folders, and digests of content."""

from __future__ import annotations

import csv
import hashlib
import os
import stat
from collections.abc import Iterator
from io import BufferedReader, FileIO, TextIOWrapper
from pathlib import Path
from typing import Any

import polars as pl

from farther.errors import DataError, shorten
from farther.registry import LONGEST_NAME, LONGEST_PATH
from farther.tables.writing import write_aside

#: Most bytes of another text that is read at once: a list of millions of files has fewer.
TEXT_BYTES = 2**29


def write_csv(path: str | Path, frame: pl.DataFrame) -> None:
    """Writes a frame as CSV: a line of column names, one line per row, nothing for null."""
    with write_aside(path) as aside:
        frame.write_csv(aside)


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


def is_present(path: str | Path) -> bool:
    """Whether a file or folder that users may leave out exists.

    A broken link is not the same as no file: what it should lead to would be ignored without a word.

    Raises:
        DataError: the path, or a folder that it lies in, is a link that leads nowhere or a loop of links; or the path
            cannot be looked up (no permission, the name is too long).
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
    """Whether a file that users may leave out exists, and is not a folder; errors as in `is_present`."""
    return is_present(path) and Path(path).is_file()


def is_folder(path: str | Path) -> bool:
    """Whether a folder that users may leave out exists, and is a folder; errors as in `is_present`."""
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
        if place.is_symlink() and not os.path.exists(place):  # noqa: PTH110, `Path.exists` may raise errors
            target = shorten(os.readlink(place))  # noqa: PTH115, the text as it is
            raise DataError(f"a link to {target} that leads nowhere: correct the link, or delete it", file=place)
        return


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


def read_text(path: str | Path, absent: str = "the file does not exist", limit: int = TEXT_BYTES) -> str:
    """Content of a file of at most `limit` bytes in UTF-8, without a byte order mark.

    Raises:
        DataError: the file does not exist (with the message `absent`), is larger, cannot be read or is not UTF-8.
    """
    if (size := regular_file(path, absent).stat().st_size) > limit:
        raise DataError(f"{size:,} bytes; at most {limit:,} are read", file=path)
    try:
        with open_binary(path, absent) as file:
            return file.read().decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        raise DataError(f"not UTF-8 at byte {error.start}", file=path) from None


def digest(*parts: str | bytes | Path) -> str:
    """Digest of content: 32 hexadecimal digits of BLAKE2b over texts, bytes, and the SHA-256 of files (a `Path`).

    Each part is framed by its length, so that `("ab", "c")` and `("a", "bc")` differ. Processors have instructions for
    SHA-256: a file of a gigabyte takes about half a second, a third of the time of BLAKE2b.
    """
    total = hashlib.blake2b(digest_size=16)
    for part in parts:
        if isinstance(part, Path):
            with open_binary(part) as file:
                content = hashlib.file_digest(file, "sha256").digest()
        else:
            content = part.encode(errors="surrogatepass") if isinstance(part, str) else part
        total.update(len(content).to_bytes(8, "little"))
        total.update(content)
    return total.hexdigest()


def inside(folder: str | Path, name: str) -> Path:
    """The path of `name` within `folder`.

    Raises:
        DataError: `name` is absolute, empty, or leads out of the folder.
    """
    folder = Path(folder)
    if not isinstance(name, str):
        raise DataError(f"expected the name of a file, found {shorten(name)}")
    path = Path(os.path.normpath(name))
    if not name or "\0" in name or path.is_absolute() or path.parts[:1] in ((), ("..",)):
        raise DataError(f"file name {shorten(name)} leaves its folder {folder}")
    sizes = [len(os.fsencode(part)) if is_unicode(part) else LONGEST_NAME + 1 for part in path.parts]
    if max(sizes) > LONGEST_NAME or sum(sizes) + len(sizes) > LONGEST_PATH:
        raise DataError(f"file name {shorten(name)} in {folder} is too long, or holds half of a surrogate pair")
    return folder / path


def is_unicode(text: str) -> bool:
    """Whether a name can be written as UTF-8: the bytes of others are kept as lone surrogates."""
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def csv_rows(path: str | Path) -> Iterator[list[str]]:
    """The rows of a CSV file in UTF-8, one in memory at a time.

    Raises:
        DataError: the file cannot be read, is not UTF-8, or has a field of more than 131,072 characters; names the row.
    """
    number = 0
    try:
        with TextIOWrapper(open_binary(path), encoding="utf-8-sig", newline="") as text:
            for row in csv.reader(text):
                number += 1
                yield row
    except UnicodeDecodeError as error:
        raise DataError(f"not UTF-8 at byte {error.start}", file=path) from None
    except csv.Error as error:
        raise DataError(f"not readable CSV: {error}", file=path, row=number + 1) from None
