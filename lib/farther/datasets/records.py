"""JSON objects of datasets with fields checked on access, and JSON files of any size."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ijson

from farther.errors import DataError, shorten
from farther.tables.documents import JSON_BYTES, read_json, read_yaml
from farther.tables.files import read_text
from farther.tables.json_stream import Bounded, list_elements, open_json

_INT64 = 2**63

#: Largest number of bytes of a list of images or of a file of labels; ImageNet's lists have 60 MB.
LIST_BYTES = 2**28


@dataclass(frozen=True, slots=True)
class Location:
    """File, row and field of a value, as `farther.errors.DataError` names them."""

    file: Path
    row: str | None = None
    field: str | None = None

    def error(self, problem: str) -> DataError:
        """An error about the value."""
        return DataError(problem, file=self.file, row=self.row, field=self.field)


@dataclass(frozen=True, slots=True)
class Record:
    """A JSON object whose fields are checked on access.

    A field that is absent or of another type is a `DataError` that names file, row and field.

    Args:
        values: Its fields.
        file: The file.
        row: Where in the file: `annotations[5]`.
        prefix: Name of the field it is the value of, with a dot, when it is one field of a row.
    """

    values: dict[str, Any]
    file: Path
    row: str | None = None
    prefix: str = ""

    def error(self, problem: str, field: str | None = None) -> DataError:
        """An error that names file, row and field."""
        if field is not None:
            field = self.prefix + field
        return DataError(problem, file=self.file, row=self.row, field=field)

    def location(self, field: str) -> Location:
        """Location of a field."""
        return Location(self.file, self.row, self.prefix + field)

    def has(self, field: str) -> bool:
        """True if the field is present and not null."""
        return self.values.get(field) is not None

    def text(self, field: str) -> str:
        """A field that must be text, not empty."""
        value = self.values.get(field)
        if not isinstance(value, str) or not value:
            raise self._unexpected(field, "text")
        return value

    def number(self, field: str) -> float:
        """A field that must be a finite number."""
        return self._finite(self.values.get(field), field)

    def numbers(self, field: str, count: int) -> list[float]:
        """A field that must be a list of `count` finite numbers."""
        value = self.values.get(field)
        if not isinstance(value, list) or len(value) != count:
            expected = f"{count} numbers"
            if count == 4 and isinstance(value, list) and len(value) in (5, 8):
                expected += ", an upright box; not an oriented one of angle or corners"
            raise self._unexpected(field, expected)
        return [self._finite(item, field) for item in value]

    def integer(self, field: str) -> int:
        """A field that must be a whole number of at most 64 bits."""
        value = self.values.get(field)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self._unexpected(field, "an integer")
        if not -_INT64 <= value < _INT64:
            raise self._unexpected(field, "an integer")
        return value

    def size(self, field: str) -> int:
        """An optional field that must be a length in pixels; 0 if absent."""
        value = self.values.get(field)
        if value is None:
            return 0
        if isinstance(value, float) and value.is_integer():  # 500.0, as some tools write it
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or value >= _INT64:
            raise self._unexpected(field, "an integer")
        if value <= 0:
            raise self._unexpected(field, "a positive number of pixels")
        return value

    def sides(self) -> dict[str, int]:
        """The optional fields `width` and `height`; see `size`."""
        return {"width": self.size("width"), "height": self.size("height")}

    def flag(self, field: str) -> bool:
        """An optional field that must be true, false, 1 or 0; false if absent."""
        value = self.values.get(field)
        if value is not None and value not in (0, 1):
            raise self._unexpected(field, "0 or 1")
        return bool(value)

    def record(self, field: str) -> Record:
        """A field that must be an object."""
        value = self.values.get(field)
        if not isinstance(value, dict):
            raise self._unexpected(field, "an object")
        return replace(self, values=value, prefix=f"{self.prefix}{field}.")

    def records(self, field: str) -> Iterator[Record]:
        """The objects in a field that must be a list of them."""
        if not isinstance(self.values.get(field), list):
            raise self._unexpected(field, "a list")
        row = f"{self.prefix}{field}"
        if self.row:
            row = f"{self.row} {row}"
        return records(self.values[field], self.file, row)

    def _finite(self, value: Any, field: str) -> float:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            try:
                if math.isfinite(value):
                    return float(value)
            except OverflowError:  # an integer of hundreds of digits
                pass
        raise self._unexpected(field, "a finite number")

    def _unexpected(self, field: str, expected: str) -> DataError:
        if field not in self.values:
            return self.error(f"the field is missing; expected {expected}", field)
        return self.error(f"expected {expected}, found {shorten(self.values[field])}", field)


def records(values: Any, file: Path, row: str = "") -> Iterator[Record]:
    """The objects of a JSON list as records.

    Args:
        values: The list.
        file: The file that it is in.
        row: Name of the list in messages.

    Raises:
        DataError: `values` is not a list, or an item is not an object.
    """
    if not isinstance(values, list):
        raise DataError(f"expected a list, found {shorten(values)}", file=file, row=row or None)
    return (_record(value, file, f"{row}[{index}]") for index, value in enumerate(values))


def _record(value: Any, file: Path, row: str | None = None) -> Record:
    if not isinstance(value, dict):
        raise DataError(f"expected an object, found {shorten(value)}", file=file, row=row)
    return Record(value, file, row)


def read_record(path: Path, without: Iterable[str] = (), limit: int = JSON_BYTES) -> Record:
    """The object in a JSON file; see `farther.tables.documents.read_json`.

    Raises:
        DataError: the file holds something else.
    """
    return _record(read_json(path, without=without, limit=limit), path)


def stream(path: Path, field: str, *, required: bool = True) -> Iterator[Record]:
    """The objects in a list at the top level of a JSON file of any size, one in memory at a time.

    Args:
        path: The file.
        field: Name of the list.
        required: Whether its absence is an error.

    Raises:
        DataError: the file is absent, is not UTF-8 or not JSON, or has no such list of objects.
    """
    is_empty = True
    for row, value in enumerate(list_elements(path, field)):
        is_empty = False
        yield _record(value, path, f"{field}[{row}]")
    if is_empty and required:
        _check_list(path, field)


def _check_list(path: Path, field: str) -> None:
    """Refuses a JSON file that has no list of this name."""
    event = _first_event(path, field)
    if event is None:
        raise DataError("the field is missing; expected a list", file=path, field=field)
    if event != "start_array":
        raise DataError("expected a list of objects", file=path, field=field)


def _first_event(path: Path, field: str) -> str | None:
    """The parser's first event in a field of a JSON file; None where there is no such field."""
    with open_json(path) as file:
        for prefix, event, _ in ijson.parse(Bounded(file)):
            if prefix == field:
                return str(event)
    return None


def are_texts(value: Any) -> bool:
    """True for a list of texts."""
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def read_mapping(
    path: Path, expected: str, absent: str = "the file does not exist"
) -> dict[Any, Any]:
    """The mapping in a YAML file.

    Args:
        path: The file.
        expected: Description of the mapping, for the message about other content.
        absent: The message where there is no such file.

    Raises:
        DataError: the file is absent, is not YAML, or holds something else.
    """
    return mapping_of(read_yaml(path, absent), path, expected)


def mapping_of(content: Any, path: Path, expected: str) -> dict[Any, Any]:
    """The content of a YAML file, which must be a mapping.

    Args:
        content: The content.
        path: The file.
        expected: Description of the mapping, for the message about other content.

    Raises:
        DataError: it is something else.
    """
    if not isinstance(content, dict):
        raise DataError(f"expected {expected}, found {shorten(content)}", file=path)
    return content


def read_lines(path: Path, absent: str) -> list[str]:
    """The lines of a text file, without surrounding blanks.

    Args:
        path: A file of at most `LIST_BYTES`.
        absent: The message where there is no such file.

    Raises:
        DataError: the file is absent, too large, or not UTF-8.
    """
    return [line.strip() for line in read_text(path, absent, LIST_BYTES).splitlines()]
