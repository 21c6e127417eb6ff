"""Tables of detections: their columns are recognised by name and read as fields of COCO results."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from math import radians as radians_of
from pathlib import Path
from typing import Any

import polars as pl

from farther.detectors.imported.numbers import whole_number
from farther.errors import DataError, first_line, shorten
from farther.tables.documents import parse_json
from farther.tables.files import read_text, separator_of
from farther.tables.oriented import (
    ADVICE,
    angle_unit,
    envelope_of_corners,
    envelope_of_rotated,
)

#: Optional columns and fields of a detection; all but the last are lists of numbers.
OPTIONAL = ("logits", "features", "latent", "box_variance", "uncertainty")
#: Accepted names of the column of each role, in lower case without punctuation, the most specific
#: first.
NAMES = {
    "image": "filename filepath file imagename imagefile imagepath imgname imgpath path image img "
    "imageid imgid",
    "class": "classname categoryname labelname label class category name cls classid categoryid "
    "labelid",
    "score": "score confidence conf prob probability detectionscore",
    "xmin": "xmin x1 left bboxxmin boxxmin bboxx1 boxx1 x0 bboxleft x bboxx topleftx",
    "ymin": "ymin y1 top bboxymin boxymin bboxy1 boxy1 y0 bboxtop y bboxy toplefty",
    "xmax": "xmax x2 right bboxxmax boxxmax bboxx2 boxx2 bboxright",
    "ymax": "ymax y2 bottom bboxymax boxymax bboxy2 boxy2 bboxbottom",
    "cx": "cx xcenter xc centerx xcentre xctr",
    "cy": "cy ycenter yc centery ycentre yctr",
    "width": "width w bboxwidth boxwidth bboxw",
    "height": "height h bboxheight boxheight bboxh",
    **{f"corner {axis}{number}": f"{axis}{number}" for number in range(5) for axis in "xy"},
    **{name: name.replace("_", "") for name in OPTIONAL},
}
#: The columns of a box in each format; the first format that is complete counts.
BOXES = {
    "four corners": tuple(f"corner {axis}{number}" for number in range(1, 5) for axis in "xy"),
    "four corners from 0": tuple(f"corner {axis}{number}" for number in range(4) for axis in "xy"),
    "corners": ("xmin", "ymin", "xmax", "ymax"),
    "centre": ("cx", "cy", "width", "height"),
    "size": ("xmin", "ymin", "width", "height"),
}
#: Boxes in pixels have a side above this; rounded fractions are up to this.
FRACTION = 1.5
#: Names of a column that says the format of the boxes, in lower case without punctuation.
FORMAT_NAMES = ("boxformat", "bboxformat", "boxmode", "bboxmode")
#: The format of each of its values.
FORMAT_OF_VALUE = {
    "xyxy": "corners",
    "ltrb": "corners",
    "xywh": "size",
    "ltwh": "size",
    "coco": "size",
    "cxcywh": "centre",
    "yolo": "centre",
}
#: Example of a first line with names of columns.
EXAMPLE = "file,xmin,ymin,xmax,ymax,class,score"


@dataclass(frozen=True)
class Columns:
    """The roles of a table's columns.

    Args:
        names: Name of the column of "image", "class", "score", of each number of the box, and of
            optional fields.
        box: Format of the boxes, a key of `BOXES`.
        separator: Character between the cells of a line of CSV.
        angle: Name of the column of the angle of oriented boxes; "" without one.
        box_format: Name of the column of the format of boxes; "" without one.
        unread: Names of the other columns, which are not read.
    """

    names: dict[str, str]
    box: str
    separator: str = ","
    angle: str = ""
    box_format: str = ""
    unread: tuple[str, ...] = ()

    @classmethod
    def of(cls, header: Sequence[str], file: Path, separator: str = ",") -> Columns:
        """Assigns roles to the columns with these names.

        Raises:
            DataError: a required column is missing, or two have the same name; lists all columns.
        """
        column_by_role = _columns_by_role(header)
        box = ""
        for box_format, roles in BOXES.items():
            if all(role in column_by_role for role in roles):
                box = box_format
                break

        listed_columns = ", ".join(shorten(name) for name in header)
        absent = [role for role in ("image", "class", "score") if role not in column_by_role]
        if not box:
            absent.append("box")
        if absent:
            problem = (
                f"no column is known as {' or '.join(absent)} (found: {listed_columns}). Write a "
                f"first line like {EXAMPLE}"
            )
            if absent == ["image"]:
                problem += (
                    ": with supervision, `sink.append(detections, custom_data={'file': path})`"
                )
            raise DataError(problem, file=file)

        names = {}
        for role in ("image", "class", "score", *BOXES[box], *OPTIONAL):
            if role in column_by_role:
                names[role] = column_by_role[role]
        count = Counter(header)
        for name in names.values():
            if count[name] > 1:
                raise DataError(
                    f"two columns are called {shorten(name)} (found: {listed_columns}); rename one",
                    file=file,
                )
        angle = ""
        box_format = ""
        unread = []
        for name in header:
            if name in names.values():
                continue
            if angle_unit(name) is not None:
                angle = name
            elif plain_name(name) in FORMAT_NAMES:
                box_format = name
            else:
                unread.append(name)
        return cls(names, box, separator, angle, box_format, tuple(unread))

    def with_fields(self, names: Iterable[str]) -> Columns:
        """The same columns of rows that may have other columns besides."""
        unread = dict.fromkeys(self.unread)
        angle = self.angle
        for name in names:
            if name in self.all_names:
                continue
            if angle_unit(name) is not None:
                angle = name
            else:
                unread[name] = None
        return replace(self, angle=angle, unread=tuple(unread))

    @property
    def all_names(self) -> list[str]:
        """Names of all columns that are read."""
        optional = [name for name in (self.angle, self.box_format) if name]
        return [*self.names.values(), *optional]

    @property
    def image_is_id(self) -> bool:
        """True if the images are named by ids."""
        return self.names["image"].casefold().endswith("id")

    @property
    def first_class(self) -> int | None:
        """Number of the first class, see `farther.detectors.imported.formats.Results`."""
        if self.names["class"].casefold().startswith("cat"):
            return None
        return 0

    @property
    def fields(self) -> dict[str, str]:
        """Name of the column of each field of COCO results."""
        fields = {
            "image_id": self.names["image"],
            "category_id": self.names["class"],
            "score": self.names["score"],
            "bbox": ", ".join(self.names[role] for role in BOXES[self.box]),
        }
        for role in OPTIONAL:
            if role in self.names:
                fields[role] = self.names[role]
        return fields


def _columns_by_role(header: Sequence[str]) -> dict[str, str]:
    """The column of each role that one of the names is known for."""
    column_by_plain_name = {plain_name(name): name for name in header}
    column_by_role = {}
    for role, accepted_names in NAMES.items():
        for accepted_name in accepted_names.split():
            if column_by_plain_name.get(accepted_name):
                column_by_role[role] = column_by_plain_name[accepted_name]
                break
    return column_by_role


def plain_name(name: str) -> str:
    """The name of a column in lower case without punctuation."""
    return re.sub(r"[^a-z0-9]", "", name.casefold())


def csv_columns(path: Path, header: Sequence[str] | None = None) -> Columns:
    """The columns of a CSV file; cells are separated by a comma, a semicolon or a tab.

    Args:
        path: The file.
        header: Names of its columns, where its first line does not have them.

    Raises:
        DataError: its first line names none, or see `Columns.of`.
    """
    first_row = next(iter(read_text(path).splitlines()), "")
    separator = separator_of(first_row)
    names = header or _cells(first_row, separator, path)
    if any(_is_number(name) for name in names):
        raise DataError(
            f"its first line names no columns (found: {shorten(first_row)}). Write one like "
            f"{EXAMPLE}",
            file=path,
        )
    return Columns.of(names, path, separator)


def _cells(line: str, separator: str, path: Path) -> list[str]:
    """The cells of the first line of a CSV file."""
    try:
        cells = next(csv.reader([line], delimiter=separator), [])
    except csv.Error as error:
        raise DataError(f"not readable CSV: {error}", file=path, row=1) from None
    return [cell.strip() for cell in cells]


def csv_batches(
    path: Path, columns: Columns, header: Sequence[str] | None, size: int
) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """Yields batches of rows of a CSV file, whose values are texts.

    Args:
        path: The file.
        columns: The columns to read.
        header: See `csv_columns`.
        size: Largest number of rows in a batch.

    Yields:
        Number of the first row's line, and the rows.

    Raises:
        DataError: the file is not readable CSV.
    """
    text = read_text(path).encode()
    try:
        frame = pl.read_csv(
            text, has_header=not header, separator=columns.separator, infer_schema=False
        )
        frame.columns = list(header or [name.strip() for name in frame.columns])
        frame = frame.select(*columns.all_names)
    except pl.exceptions.NoDataError:
        return
    except pl.exceptions.PolarsError as error:
        raise DataError(f"not readable CSV: {first_line(error)}", file=path) from None
    first = 1 if header else 2
    for start in range(0, frame.height, size):
        yield first + start, frame[start : start + size].to_dicts()


def records_of(rows: list[Any], columns: Columns, file: Path, first: int) -> Records:
    """Rows of a table as records of COCO results.

    Args:
        rows: Each with one value per column, a text or a number.
        columns: The roles of the columns.
        file, first: The file, and the number of the first row in it, for messages.

    Raises:
        DataError: a value is missing or not a number; names row and column.
    """
    records = Records()
    for number, row in enumerate(rows, first):
        records.add(_record(row, columns, file, number))
    return records


@dataclass
class Records:
    """Records of COCO results.

    Attributes:
        detections: The records.
        oriented: Number of those whose box is the envelope of an oriented box or an outline.
        unread: Names of fields that are neither read nor COCO's.
    """

    detections: list[dict[str, Any]] = field(default_factory=list)
    oriented: int = 0
    unread: frozenset[str] = frozenset()

    def add(self, record: _Record) -> None:
        """Adds a record."""
        self.detections.append(record.detection)
        self.oriented += record.is_oriented


@dataclass(frozen=True)
class _Record:
    """A record of COCO results; `is_oriented` if its box is the envelope of an oriented one."""

    detection: dict[str, Any]
    is_oriented: bool


def _record(row: Any, columns: Columns, file: Path, number: int) -> _Record:
    """A row as a record of COCO results; `number` is that of the row."""
    if not isinstance(row, dict):
        raise DataError(f"expected an object, found {shorten(row)}", file=file, row=number)
    for name in columns.names.values():
        if row.get(name) in (None, ""):
            raise DataError("there is no value", file=file, row=number, field=name)

    decimal = "," if columns.separator == ";" else "."
    values = {}
    for role, name in columns.names.items():
        if role in BOXES[columns.box] or role in ("score", "uncertainty"):
            values[role] = _number(row[name], decimal, file, number, name)
    _check_format(row, columns, file, number)
    box = _Box.of(columns.box, values)
    radians = _radians(row, columns, values, decimal, file, number)
    if radians:
        box = box.rotated(radians)
    record = {
        "image_id": _image_name(row[columns.names["image"]]),
        "category_id": _class_of(row[columns.names["class"]], decimal),
        "bbox": box.coco,
        "score": values["score"],
    }
    for role in OPTIONAL:
        if role not in columns.names:
            continue
        name = columns.names[role]
        if role in values:
            record[role] = values[role]
        elif isinstance(row[name], str):
            record[role] = parse_json(row[name], file, row=number, field=name)
        else:
            record[role] = row[name]
    return _Record(record, bool(radians) or columns.box.startswith("four corners"))


@dataclass(frozen=True)
class _Box:
    """A box: its corner xmin, ymin, and its size."""

    x: float
    y: float
    width: float
    height: float

    @classmethod
    def of(cls, box_format: str, values: dict[str, float]) -> _Box:
        """The box of the numbers of a format of `BOXES`."""
        if box_format.startswith("four corners"):
            corners = [values[role] for role in BOXES[box_format]]
            xmin, ymin, xmax, ymax = envelope_of_corners(corners)
            return cls(xmin, ymin, xmax - xmin, ymax - ymin)
        if box_format == "corners":
            width = values["xmax"] - values["xmin"]
            height = values["ymax"] - values["ymin"]
            return cls(values["xmin"], values["ymin"], width, height)
        width = values["width"]
        height = values["height"]
        if box_format == "centre":
            return cls(values["cx"] - width / 2, values["cy"] - height / 2, width, height)
        return cls(values["xmin"], values["ymin"], width, height)

    def rotated(self, radians: float) -> _Box:
        """The envelope of the box that is rotated about its centre."""
        cx = self.x + self.width / 2
        cy = self.y + self.height / 2
        edges = envelope_of_rotated(cx, cy, self.width, self.height, radians)
        xmin, ymin, xmax, ymax = edges
        return _Box(xmin, ymin, xmax - xmin, ymax - ymin)

    @property
    def coco(self) -> tuple[float, float, float, float]:
        """x, y, width, height."""
        return self.x, self.y, self.width, self.height


def _check_format(row: dict[str, Any], columns: Columns, file: Path, number: int) -> None:
    """Refuses a row that says another format of its box than its columns have."""
    if not columns.box_format:
        return
    value = row.get(columns.box_format)
    stated = FORMAT_OF_VALUE.get(plain_name(str(value)))
    if stated not in (None, columns.box):
        names = ", ".join(columns.names[role] for role in BOXES[columns.box])
        problem = f"{shorten(value)}, but the columns of the box are {names}: rename them"
        raise DataError(problem, file=file, row=number, field=columns.box_format)


def _radians(
    row: dict[str, Any],
    columns: Columns,
    values: dict[str, float],
    decimal: str,
    file: Path,
    number: int,
) -> float:
    """The angle of the box of a row; 0 where it has none.

    Args:
        row: The row, whose number is `number`.
        columns: The roles of the columns.
        values: Numbers of the row by role.
        decimal: Character before the decimals.
        file: The file, for messages.

    Raises:
        DataError: how it rotates the box is not known.
    """
    value = row.get(columns.angle) if columns.angle else None
    text = _with_point(value, decimal)
    if not _is_number(text) or float(text) == 0:
        return 0.0
    unit = angle_unit(columns.angle)
    sizes = [abs(values[role]) for role in BOXES[columns.box]]
    is_in_fractions = max(sizes) <= FRACTION
    if columns.box != "centre" or unit == "unknown" or is_in_fractions:
        reason = "the file does not say whether the angle is in degrees or radians"
        if is_in_fractions:
            reason = "in fractions of width and height an angle is not one of the image"
        if columns.box != "centre":
            reason = "the file does not say about which point the angle rotates the box"
        problem = (
            f"{shorten(value)}, an oriented box, but {reason}: {ADVICE}. Leave the column out "
            "where boxes are upright"
        )
        raise DataError(problem, file=file, row=number, field=columns.angle)
    if unit == "degrees":
        return radians_of(float(text))
    return float(text)


def _class_of(value: Any, decimal: str) -> Any:
    """A class: its number, also where it is written as 6.0; else its name."""
    number = whole_number(_with_point(value, decimal))
    if number is None:
        return value
    return number


def _image_name(value: Any) -> str:
    """An image's name or id, also where a table holds the id as 139.0."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip()


def _number(value: Any, decimal: str, file: Path, row: int, field: str) -> float:
    """The number in a cell.

    Raises:
        DataError: it is not a number.
    """
    text = _with_point(value, decimal)
    if isinstance(text, bool) or not _is_number(text):
        raise DataError(
            f"expected a number, found {shorten(value)}", file=file, row=row, field=field
        )
    return float(text)


def _with_point(value: Any, decimal: str) -> Any:
    """A value; a text with another decimal separator gets a point."""
    if isinstance(value, str):
        return value.replace(decimal, ".")
    return value


def _is_number(text: Any) -> bool:
    """True if a text or a number is a finite number."""
    try:
        return isfinite(float(text))
    except (TypeError, ValueError):
        return False
