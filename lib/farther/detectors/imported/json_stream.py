"""Reading JSON files larger than memory, one element of a list at a time."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from farther.errors import DataError

#: Characters read at once.
CHUNK = 1 << 20
#: Characters that one element may have. A file that is no JSON is noticed after so many.
LARGEST = 1 << 26

_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()


def list_elements(path: str | Path) -> Iterator[Any]:
    """The elements of a file that holds a list.

    Raises:
        DataError: the file is absent, is not UTF-8 or JSON, or holds something else; names the element.
    """
    with _opened(path) as file:
        text = _Text(file, path)
        if text.peek() != "[":
            raise DataError(f"expected a list, found {text.peek()!r} at its start", file=path)
        yield from text.elements()
        text.end()


def listed_in(path: str | Path, names: frozenset[str]) -> Iterator[tuple[str, Any]]:
    """The elements of some lists of a file that holds an object, each with the name of its list.

    What else the object holds is passed over; of a list that is passed over, no more than one element is in memory.

    Raises:
        DataError: see `list_elements`.
    """
    with _opened(path) as file:
        text = _Text(file, path)
        if text.peek() != "{":
            raise DataError(f"expected an object, found {text.peek()!r} at its start", file=path)
        for _ in text.separated("{", "}"):
            name = text.value()
            text.take(":")
            if text.peek() != "[":
                text.value()
                continue
            for element in text.elements():
                if name in names:
                    yield name, element
        text.end()


def _opened(path: str | Path) -> IO[str]:
    try:
        return Path(path).open(encoding="utf-8-sig")
    except (FileNotFoundError, IsADirectoryError):
        raise DataError("the file does not exist", file=path) from None


class _Text:
    """A file's text, of which only a part is in memory: what was taken is forgotten."""

    def __init__(self, file: IO[str], path: str | Path):
        self._file = file
        self._path = path
        self._text = ""
        self._at = 0
        self._row: int | None = None

    def peek(self) -> str:
        """The next character that is no space; "" at the end of the file."""
        while True:
            self._at = _SPACE.match(self._text, self._at).end()  # type: ignore[union-attr]  # it matches anything
            if self._at < len(self._text) or not self._more():
                return self._text[self._at : self._at + 1]

    def take(self, expected: str) -> None:
        """Passes over one character, which must be this one."""
        found = self.peek()
        if found != expected:
            raise self._error(f"expected {expected!r}, found {found!r}" if found else f"ends before {expected!r}")
        self._at += 1

    def separated(self, opening: str, closing: str) -> Iterator[int]:
        """Numbers the parts of a list or an object; between two steps, the caller takes a part."""
        self.take(opening)
        number = 0
        while self.peek() != closing:
            if number:
                self.take(",")
            yield number
            number += 1
        self.take(closing)

    def elements(self) -> Iterator[Any]:
        """The elements of the list that comes next."""
        for row in self.separated("[", "]"):
            self._row = row
            yield self.value()
        self._row = None

    def value(self) -> Any:
        """The value that comes next."""
        self.peek()
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._at)
                # A number may go on beyond what was read.
                if end < len(self._text) or not self._more():
                    self._at = end
                    return value
            except json.JSONDecodeError as error:
                if len(self._text) - self._at > LARGEST or not self._more():
                    raise self._error(f"not JSON: {error.msg}") from None
            except RecursionError:
                raise self._error("not JSON that can be read: too many brackets within each other") from None

    def end(self) -> None:
        """Checks that nothing follows."""
        if self.peek():
            raise self._error(f"expected the end of the file, found {self.peek()!r}")

    def _more(self) -> bool:
        # As much again as is waiting, so that a long element is not tried too often.
        waiting = self._text[self._at :]
        try:
            read = self._file.read(max(CHUNK, len(waiting)))
        except UnicodeDecodeError as error:
            raise self._error(f"not UTF-8: {error.reason}") from None
        self._text, self._at = waiting + read, 0
        return bool(read)

    def _error(self, problem: str) -> DataError:
        return DataError(f"{problem}. Is the file complete?", file=self._path, row=self._row)
