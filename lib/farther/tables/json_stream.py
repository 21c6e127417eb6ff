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

#: Most bytes of one element, which ijson holds in memory.
ELEMENT_BYTES = 16_000_000
#: Most bytes of a number: Python reads none that has more digits, and ijson crashes.
NUMBER_BYTES = 4_300

_TEXT = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)

#: All bytes but those that, outside of texts, begin, end or separate something.
_NOT_STRUCTURAL = bytes({*range(256)} - {*b"[]{},"})

#: Translation of the bytes that numbers have to "0", and of others to " ".
_TO_ZEROS = bytes(ord("0") if byte in b"0123456789+-.eE" else ord(" ") for byte in range(256))

#: Change of the depth by each byte.
_DEPTH_STEPS = np.zeros(256, dtype=np.int32)
_DEPTH_STEPS[[*b"[{"]] = 1
_DEPTH_STEPS[[*b"]}"]] = -1


def list_elements(path: str | Path, key: str | None = None) -> Iterator[Any]:
    """The elements of a list in a JSON file.

    Numbers with a fraction or an exponent become floats. Without the key there are no elements.

    Args:
        path: The file.
        key: Key of the list in the file's object; None where the file is the list.

    Raises:
        DataError: the file is absent, is not JSON in UTF-8 or UTF-16, or holds something else;
            names the element.
    """
    if key is None:
        opening = "["
        expected = "a list"
        prefix = "item"
        list_depth = 1
    else:
        opening = "{"
        expected = "an object"
        prefix = f"{key}.item"
        list_depth = 2
    count = 0
    with open_json(path) as file:
        try:
            first = _first_character(file)
            if first != opening:
                problem = f"expected {expected}, found {shorten(first)} at its start"
                raise DataError(problem, file=path)
            for element in ijson.items(Bounded(file, list_depth), prefix, use_float=True):
                yield element
                count += 1
        except (ijson.JSONError, ValueError, RecursionError) as error:
            problem = f"not JSON: {parser_message(error)}. Is the file complete?"
            row: int | str = count
            if key is not None:
                row = f"{key}[{count}] or later"
            raise DataError(problem, file=path, row=row) from None


@contextmanager
def open_json(path: str | Path) -> Iterator[IO[bytes]]:
    """A JSON file, opened to read its text as UTF-8, without a byte order mark.

    Many programs on Windows write such a mark.

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
        """Goes to a position, which must be 0."""
        self._file.seek(position)
        self._decoder = codecs.getincrementaldecoder(self._encoding)()
        self._rest = b""

    def read(self, size: int) -> bytes:
        """The next bytes, `size` of them unless the file ends.

        Raises:
            UnicodeDecodeError: the file is in another encoding.
        """
        while len(self._rest) < size:
            encoded = self._file.read(size)
            text = self._decoder.decode(encoded, final=not encoded)
            self._rest += text.encode("utf-8", "surrogatepass")
            if not encoded:
                break
        data = self._rest[:size]
        self._rest = self._rest[size:]
        return data


class Bounded:
    """A JSON file that is refused where it is nested too deeply, or one element is too large.

    Args:
        file: The file.
        level: Depth of the list of the elements; 2 where the file is an object that contains it.
    """

    def __init__(self, file: IO[bytes], level: int = 2):
        self._file = file
        self._level = level
        #: Depth at the end of the bytes that were read.
        self._depth = 0
        #: Number of bytes since the last part of the file in which an element ended.
        self._element_bytes = 0
        #: The beginning of a text that is not read to its end: its quote, and an open escape.
        self._open_text = b""
        #: Zeros for the beginning of a number that is not read to its end.
        self._open_number = b""

    def read(self, size: int) -> bytes:
        """The next bytes.

        Raises:
            ijson.JSONError: they exceed `DEPTH`, `NUMBER_BYTES` or `ELEMENT_BYTES`.
        """
        data = self._file.read(size)

        # Without complete texts, a quote that is left begins a text that goes on in the next bytes.
        without_texts = _TEXT.sub(b"", self._open_text + data)
        outside_texts, quote, open_text = without_texts.partition(b'"')
        # An odd number of backslashes at its end escapes the first of the next bytes.
        backslashes = len(open_text) - len(open_text.rstrip(b"\\"))
        self._open_text = quote + b"\\" * (backslashes % 2)

        structural = outside_texts.translate(None, _NOT_STRUCTURAL)
        steps = _DEPTH_STEPS[np.frombuffer(structural, dtype=np.uint8)]
        depth = self._depth + np.cumsum(steps)
        self._depth += int(steps.sum())
        if depth.max(initial=0) > DEPTH:
            raise ijson.JSONError(f"nested more than {DEPTH} levels deep")

        self._check_numbers(outside_texts, ends_in_text=bool(quote))
        # At the depth of the list, outside of its elements: one has ended within these bytes.
        if depth.min(initial=DEPTH) <= self._level:
            self._element_bytes = 0
        self._element_bytes += len(data)
        if self._element_bytes > ELEMENT_BYTES:
            raise ijson.JSONError(f"an element of more than {ELEMENT_BYTES // 1_000_000} MB")
        return data

    def _check_numbers(self, outside_texts: bytes, *, ends_in_text: bool) -> None:
        """Refuses a number that is too long."""
        zeros = self._open_number + outside_texts.translate(_TO_ZEROS)
        self._open_number = b""
        if not ends_in_text:
            self._open_number = zeros[len(zeros.rstrip(b"0")) :]
        if b"0" * (NUMBER_BYTES + 1) in zeros:
            raise ijson.JSONError(f"a number of more than {NUMBER_BYTES:,} characters")


def _first_character(file: IO[bytes]) -> str:
    """The first character that is not a space; the file is then at its start again."""
    character = file.read(1)
    while character and character in b" \t\r\n":
        character = file.read(1)
    file.seek(0)
    return character.decode("latin-1")


def parser_message(error: Exception) -> str:
    """The parser's message, and the text around the place that it could not read."""
    if isinstance(error, UnicodeDecodeError):
        return f"not {error.encoding.upper()} at byte {error.start}"
    text = error.args[0] if error.args else error
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    message, *excerpt = str(text).split("\n")
    message = message.rstrip(".")
    near = excerpt[0].strip() if excerpt else ""
    if near:
        message = f"{message} near {near!r}"
    return message
