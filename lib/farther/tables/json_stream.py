"""Lists in JSON files larger than memory, one element at a time."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import ijson

from farther.errors import DataError, shorten
from farther.tables.files import open_binary

#: Most levels of a file: ijson keeps the path to each of them.
DEPTH = 1000
#: Most bytes of one element of a file that is a list: ijson keeps it whole.
ELEMENT_BYTES = 16_000_000


def list_elements(path: str | Path, key: str | None = None) -> Iterator[Any]:
    """The elements of a file that holds a list, or of the list at a key of a file that holds an object.

    Numbers with a fraction or an exponent become floats. Without the key there are no elements.

    Args:
        path: The file.
        key: Key of the list; None where the file is the list.

    Raises:
        DataError: the file is absent, is not UTF-8 or JSON, or holds something else; names the element.
    """
    row = 0
    with open_binary(path) as file:
        opening = _first_character(file)
        if opening != ("[" if key is None else "{"):
            expected = "a list" if key is None else "an object"
            raise DataError(f"expected {expected}, found {shorten(opening)} at its start", file=path)
        try:
            source = _Bounded(file, None if key else ELEMENT_BYTES)
            for element in ijson.items(source, "item" if key is None else f"{key}.item", use_float=True):
                yield element
                row, source.since = row + 1, 0
        except (ijson.JSONError, ValueError, RecursionError) as error:
            problem = f"not JSON: {_message(error)}. Is the file complete?"
            raise DataError(problem, file=path, row=row if key is None else f"{key}[{row}] or later") from None


class _Bounded:
    """A file that is refused where it is nested more than `DEPTH` levels deep, or where one element is too large.

    Args:
        file: The file.
        most: Most bytes of an element; None where others lie between them.
    """

    def __init__(self, file: IO[bytes], most: int | None):
        self._file, self._depth, self._most = file, 0, most
        self.since = 0  # bytes since the last element

    def read(self, size: int) -> bytes:
        """The next bytes."""
        data = self._file.read(size)
        self._depth += data.count(b"[") + data.count(b"{") - data.count(b"]") - data.count(b"}")
        self.since += len(data)
        if self._depth > DEPTH:
            raise ijson.JSONError(f"nested more than {DEPTH} levels deep")
        if self._most is not None and self.since > self._most:
            raise ijson.JSONError(f"an element of more than {self._most // 1_000_000} MB")
        return data


def _first_character(file: IO[bytes]) -> str:
    """The first character that is not a space; the file is then at its start, behind a byte order mark."""
    start = len(codecs.BOM_UTF8) if file.read(3) == codecs.BOM_UTF8 else 0
    file.seek(start)
    while (character := file.read(1)) and character in b" \t\r\n":
        pass
    file.seek(start)
    return character.decode("latin-1")


def _message(error: Exception) -> str:
    """The parser's message, and the text around the place that it could not read."""
    text = error.args[0] if error.args else error
    message, *excerpt = (text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)).split("\n")
    near = excerpt[0].strip() if excerpt else ""
    return message.rstrip(".") + (f" near {near!r}" if near else "")
