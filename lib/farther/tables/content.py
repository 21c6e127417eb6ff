"""The content of files: texts, tables of text, and digests."""

from __future__ import annotations

import codecs
import csv
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING

from farther.errors import DataError
from farther.tables.opening import open_binary, regular_file
from farther.tables.writing import write_aside

if TYPE_CHECKING:
    import polars as pl

#: Most bytes of a text that is read at once: a list of millions of files has fewer.
TEXT_BYTES = 2**29


def write_csv(path: str | Path, frame: pl.DataFrame) -> None:
    """Writes a frame as CSV: a line of column names, one line per row, nothing for null."""
    with write_aside(path) as aside:
        frame.write_csv(aside)


def read_text(
    path: str | Path, absent: str = "the file does not exist", limit: int = TEXT_BYTES
) -> str:
    """Text of a file of at most `limit` bytes in UTF-8 or, with a byte order mark, UTF-16.

    Without that mark, and with "\\n" at the end of each line.

    Raises:
        DataError: the file does not exist (with the message `absent`), is larger, cannot be read or
            is in another encoding.
    """
    size = regular_file(path, absent).stat().st_size
    if size > limit:
        raise DataError(f"{size:,} bytes; at most {limit:,} are read", file=path)
    with open_binary(path, absent) as file:
        content = file.read()
    codec = "utf-8-sig"
    encoding = "UTF-8"
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        codec = "utf-16"
        encoding = "UTF-16"
    try:
        text = content.decode(codec)
    except UnicodeDecodeError as error:
        raise DataError(f"not {encoding} at byte {error.start}", file=path) from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


@dataclass(frozen=True)
class FileContent:
    """The content of a file that was read: its `digest` is that of the file's path."""

    content: bytes


def digest(*parts: str | bytes | Path | FileContent) -> str:
    """Digest of content: texts, bytes, and the SHA-256 of files (a `Path`, or what was read).

    Each part is framed by its length, so that `("ab", "c")` and `("a", "bc")` differ. Processors
    have instructions for SHA-256: a file of a gigabyte takes about half a second, a third of the
    time of BLAKE2b.

    Returns:
        32 hexadecimal digits of BLAKE2b.
    """
    total = hashlib.blake2b(digest_size=16)
    for part in parts:
        if isinstance(part, Path):
            with open_binary(part) as file:
                content = hashlib.file_digest(file, "sha256").digest()
        elif isinstance(part, FileContent):
            content = hashlib.sha256(part.content).digest()
        elif isinstance(part, str):
            content = part.encode(errors="surrogatepass")
        else:
            content = part
        total.update(len(content).to_bytes(8, "little"))
        total.update(content)
    return total.hexdigest()


def separator_of(first_line: str) -> str:
    """The character between the cells of a CSV file: a comma, or a semicolon or a tab.

    With semicolons, as spreadsheets of many countries write them, decimals follow a comma.

    Args:
        first_line: The names of the columns.

    >>> separator_of("image,score"), separator_of("image;score"), separator_of("image")
    (',', ';', ',')
    """
    return max(",;\t", key=first_line.count)


def csv_rows(path: str | Path) -> Iterator[list[str]]:
    """The rows of a CSV file in UTF-8, one in memory at a time.

    Raises:
        DataError: the file cannot be read, is not UTF-8, or has a field of more than 131,072
            characters; names the row.
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
