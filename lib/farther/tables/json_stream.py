"""Lists in JSON files larger than memory, one element at a time."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

import ijson
import numpy as np

from farther.errors import DataError, shorten
from farther.tables.documents import DEPTH
from farther.tables.files import open_binary

#: Most bytes of one element, which ijson keeps whole, and of a number: Python reads none that has
#: more digits, and there ijson crashes.
ELEMENT_BYTES, NUMBER_BYTES = 16_000_000, 4_300

_TEXT = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
#: All bytes but those that begin or end something outside of texts, and what these add to the
#: depth.
_OTHERS = bytes({*range(256)} - {*b"[]{},"})
#: "0" for all bytes that numbers have, and " " for others.
_OF_NUMBERS = bytes(ord("0") if byte in b"0123456789+-.eE" else ord(" ") for byte in range(256))
_STEPS = np.zeros(256, dtype=np.int32)
_STEPS[[*b"[{"]], _STEPS[[*b"]}"]] = 1, -1


def list_elements(path: str | Path, key: str | None = None) -> Iterator[Any]:
    """The elements of a file that holds a list, or of the list at a key of a file that holds an object.

    Numbers with a fraction or an exponent become floats. Without the key there are no elements.

    Args:
        path: The file.
        key: Key of the list; None where the file is the list.

    Raises:
        DataError: the file is absent, is not JSON in UTF-8 or UTF-16, or holds something else;
            names the element.
    """
    row = 0
    with open_json(path) as file:
        try:
            opening = _first_character(file)
            if opening != ("[" if key is None else "{"):
                expected = "a list" if key is None else "an object"
                raise DataError(
                    f"expected {expected}, found {shorten(opening)} at its start", file=path
                )
            source = Bounded(file, 1 if key is None else 2)
            for element in ijson.items(
                source, "item" if key is None else f"{key}.item", use_float=True
            ):
                yield element
                row += 1
        except (ijson.JSONError, ValueError, RecursionError) as error:
            problem = f"not JSON: {parser_message(error)}. Is the file complete?"
            raise DataError(
                problem, file=path, row=row if key is None else f"{key}[{row}] or later"
            ) from None


@contextmanager
def open_json(path: str | Path) -> Iterator[IO[bytes]]:
    """A JSON file, opened to read its text as UTF-8, without a byte order mark: many programs of Windows write one.

    Raises:
        DataError: the file is absent or cannot be read.
    """
    with open_binary(path) as file:
        start = file.read(4)
        file.seek(0)
        encoding = json.detect_encoding(start)  # by its first bytes, as RFC 4627 says
        if encoding == "utf-8":
            yield file
        else:
            yield cast(IO[bytes], _AsUtf8(file, encoding))


class _AsUtf8:
    """A file in another encoding of Unicode, read as UTF-8 without a byte order mark.

    Args:
        file: The file, at its start.
        encoding: Its encoding, as Python calls it: "utf-16", "utf-8-sig".
    """

    def __init__(self, file: IO[bytes], encoding: str):
        self._file = file
        self._encoding = encoding
        self.seek(0)

    def seek(self, position: int) -> None:
        """Starts again; other positions than 0 are not known."""
        self._file.seek(position)
        self._decoder = codecs.getincrementaldecoder(self._encoding)()
        self._rest = b""

    def read(self, size: int) -> bytes:
        """The next bytes, `size` of them unless the file ends.

        Raises:
            UnicodeDecodeError: the file is in another encoding.
        """
        while len(self._rest) < size:
            data = self._file.read(size)
            self._rest += self._decoder.decode(data, final=not data).encode(
                "utf-8", "surrogatepass"
            )
            if not data:
                break
        data, self._rest = self._rest[:size], self._rest[size:]
        return data


class Bounded:
    """A file that is refused where it is nested more than `DEPTH` levels deep, or where one element is too large.

    Args:
        file: The file.
        level: Depth of the list of the elements; 2 where the file is an object that holds it.
    """

    def __init__(self, file: IO[bytes], level: int = 2):
        self._file, self._level = file, level
        self._depth = 0  # where what was read ends
        self._since = 0  # bytes from the beginning of the last part that had an end of an element
        self._open = b""  # the beginning of a text that does not end there
        self._number = b""  # zeros for the beginning of a number that does not end there

    def read(self, size: int) -> bytes:
        """The next bytes."""
        data = self._file.read(size)
        bare, quote, text = _TEXT.sub(b"", self._open + data).partition(b'"')
        self._open = quote + b"\\" * ((len(text) - len(text.rstrip(b"\\"))) % 2)
        steps = _STEPS[np.frombuffer(bare.translate(None, _OTHERS), dtype=np.uint8)]
        depth = self._depth + np.cumsum(steps)
        if depth.max(initial=0) > DEPTH:
            raise ijson.JSONError(f"nested more than {DEPTH} levels deep")
        numbers = self._number + bare.translate(_OF_NUMBERS)
        self._number = b"" if quote else numbers[len(numbers.rstrip(b"0")) :]
        if b"0" * (NUMBER_BYTES + 1) in numbers:
            raise ijson.JSONError(f"a number of more than {NUMBER_BYTES:,} characters")
        self._since = len(data) + (0 if depth.min(initial=DEPTH) <= self._level else self._since)
        if self._since > ELEMENT_BYTES:
            raise ijson.JSONError(f"an element of more than {ELEMENT_BYTES // 1_000_000} MB")
        self._depth += int(steps.sum())
        return data


def _first_character(file: IO[bytes]) -> str:
    """The first character that is not a space; the file is then at its start again."""
    while (character := file.read(1)) and character in b" \t\r\n":
        pass
    file.seek(0)
    return character.decode("latin-1")


def parser_message(error: Exception) -> str:
    """The parser's message, and the text around the place that it could not read."""
    if isinstance(error, UnicodeDecodeError):
        return f"not {error.encoding.upper()} at byte {error.start}"
    text = error.args[0] if error.args else error
    message, *excerpt = (
        text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)
    ).split("\n")
    near = excerpt[0].strip() if excerpt else ""
    return message.rstrip(".") + (f" near {near!r}" if near else "")
