"""Lists in JSON files larger than memory, some elements at a time."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import IO, Any, cast

import ijson
import numpy as np

from farther.errors import DataError, shorten
from farther.tables.documents import JSON_DEPTH, faultless_json
from farther.tables.files import open_binary

#: Most bytes of one element, which ijson holds in memory, and of a file that is parsed at once.
ELEMENT_BYTES = 16_000_000
#: Most bytes of a number: Python reads none that has more digits, and ijson crashes.
NUMBER_BYTES = 4_300

#: Bytes of a list that are parsed at once.
PART_BYTES = 1_000_000
#: Number of places where such a piece may end that are tried: elements hold objects themselves.
CUTS = 8

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
        for part in list_parts(path):
            yield from part
        return
    content = small_json(path)
    if isinstance(content, dict):
        elements = content.get(key)
        if isinstance(elements, list):
            yield from elements
        return
    with open_json(path) as file:
        _check_first_character(file, "{", "an object", path)
        count = 0
        try:
            for element in ijson.items(Bounded(file, 2), f"{key}.item", use_float=True):
                yield element
                count += 1
        except (ijson.JSONError, ValueError, RecursionError) as error:
            raise _not_json(error, path, f"{key}[{count}] or later") from None


def small_json(path: str | Path) -> Any:
    """The value of a JSON file of at most `ELEMENT_BYTES`; None for another file.

    Raises:
        DataError: the file is absent or cannot be read.
    """
    with open_json(path) as file:
        try:
            content = file.read(ELEMENT_BYTES + 1)
            if len(content) <= ELEMENT_BYTES:
                return faultless_json(content)
        except ValueError:
            pass
    return None


def list_parts(path: str | Path) -> Iterator[list[Any]]:
    """The elements of a JSON file that is a list, some thousand at a time.

    A piece of the file is cut behind a `}`, and parsed as a list: if that succeeds, an element
    ended there, as the beginning of a JSON text decides how it is read. What cannot be read so,
    such as a list of numbers or a damaged file, is parsed element by element.

    Args:
        path: The file.

    Raises:
        DataError: see `list_elements`.
    """
    with open_json(path) as file:
        _check_first_character(file, "[", "a list", path)
        count = 0
        # The beginning of a list for a text behind an element, and the number of its elements.
        opening = b""
        skipped = 0
        text = b""
        while len(text) <= ELEMENT_BYTES:
            data = file.read(max(PART_BYTES, len(text)))
            text += data
            if not data:
                last_elements = _parsed_list(opening + text)
                if last_elements is None:
                    break
                yield last_elements[skipped:]
                return

            part = _first_part(opening, text)
            if part is None:
                continue
            elements = part.elements[skipped:]
            yield elements
            count += len(elements)
            text = text[part.length :]
            opening = b"[0"
            skipped = 1
        yield from _streamed_parts(_Joined(opening + text, file), skipped, count, path)


@dataclass(frozen=True)
class _Part:
    """Elements at the beginning of a text, and the number of bytes that they take."""

    elements: list[Any]
    length: int


def _first_part(opening: bytes, text: bytes) -> _Part | None:
    """The complete elements of a text that continues; None if none is found.

    Args:
        opening: Text before it.
        text: The text.
    """
    end = len(text)
    for _ in range(CUTS):
        end = text.rfind(b"}", 0, end)
        if end < 0:
            return None
        elements = _parsed_list(opening + text[: end + 1] + b"]")
        if elements is not None:
            return _Part(elements, end + 1)
    return None


def _parsed_list(text: bytes) -> list[Any] | None:
    """The list of a JSON text; None for another text."""
    try:
        value = faultless_json(text)
    except ValueError:
        return None
    if not isinstance(value, list):
        return None
    return value


def _streamed_parts(file: _Joined, skipped: int, count: int, path: str | Path) -> Iterator[Any]:
    """The elements of a list, each in a list of its own.

    Args:
        file: The list.
        skipped: Number of its first elements that are not elements of the file.
        count: Number of elements of the file before it.
        path: The file, for messages.
    """
    try:
        elements = ijson.items(Bounded(file, 1), "item", use_float=True)
        for element in islice(elements, skipped, None):
            yield [element]
            count += 1
    except (ijson.JSONError, ValueError, RecursionError) as error:
        raise _not_json(error, path, count) from None


class _Joined:
    """Some bytes, and the rest of a file behind them.

    Args:
        start: The bytes.
        file: The file, at its rest.
    """

    def __init__(self, start: bytes, file: IO[bytes]):
        self._start = BytesIO(start)
        self._file = file

    def read(self, size: int) -> bytes:
        """The next bytes, at most `size` of them; none at the end."""
        return self._start.read(size) or self._file.read(size)


def _check_first_character(file: IO[bytes], opening: str, expected: str, path: str | Path) -> None:
    """Refuses a file that does not begin with a character."""
    first = _first_character(file)
    if first != opening:
        raise DataError(f"expected {expected}, found {shorten(first)} at its start", file=path)


def _not_json(error: Exception, path: str | Path, row: int | str) -> DataError:
    """The error about a text that a parser does not read."""
    problem = f"not JSON: {parser_message(error)}. Is the file complete?"
    return DataError(problem, file=path, row=row)


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

    def __init__(self, file: IO[bytes] | _Joined, level: int = 2):
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
            ijson.JSONError: they exceed `JSON_DEPTH`, `NUMBER_BYTES` or `ELEMENT_BYTES`.
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
        if depth.max(initial=0) > JSON_DEPTH:
            raise ijson.JSONError(f"nested more than {JSON_DEPTH} levels deep")

        self._check_numbers(outside_texts, ends_in_text=bool(quote))
        # At the depth of the list, outside of its elements: one has ended within these bytes.
        if depth.min(initial=JSON_DEPTH) <= self._level:
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
