"""Columns of tables of detections: recognised by their names, and made into the fields of COCO results."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

import polars as pl

from farther.detectors.imported.numbers import whole_number
from farther.errors import DataError, first_line, shorten
from farther.tables.documents import parse_json
from farther.tables.files import read_text

#: Columns and fields that a detection may have beside those that it must have; all but the last are
#: lists of numbers.
OPTIONAL = ("logits", "features", "latent", "box_variance", "uncertainty")
#: Names of columns without case and punctuation, the more telling first.
NAMES = {
    "image": "filename filepath file imagename imagefile imagepath imgname imgpath path image img imageid imgid",
    "class": "classname categoryname labelname label class category name cls classid categoryid labelid",
    "score": "score confidence conf prob probability detectionscore",
    "xmin": "xmin x1 left bboxxmin boxxmin bboxx1 boxx1 x0 bboxleft x bboxx topleftx",
    "ymin": "ymin y1 top bboxymin boxymin bboxy1 boxy1 y0 bboxtop y bboxy toplefty",
    "xmax": "xmax x2 right bboxxmax boxxmax bboxx2 boxx2 bboxright",
    "ymax": "ymax y2 bottom bboxymax boxymax bboxy2 boxy2 bboxbottom",
    "cx": "cx xcenter xc centerx xcentre xctr",
    "cy": "cy ycenter yc centery ycentre yctr",
    "width": "width w bboxwidth boxwidth bboxw",
    "height": "height h bboxheight boxheight bboxh",
    **{name: name.replace("_", "") for name in OPTIONAL},
}
#: The columns of a box, in the order in which they are looked for.
BOXES = {
    "corners": ("xmin", "ymin", "xmax", "ymax"),
    "centre": ("cx", "cy", "width", "height"),
    "size": ("xmin", "ymin", "width", "height"),
}
#: A line of names that every table may have.
EXAMPLE = "file,xmin,ymin,xmax,ymax,class,score"


@dataclass(frozen=True)
class Columns:
    """Which columns of a table hold what.

    Args:
        names: Name of the column of "image", "class", "score", those of the box, and of optional
            fields.
        box: A key of `BOXES`.
        separator: Between the cells of a line of CSV.
    """

    names: dict[str, str]
    box: str
    separator: str = ","

    @classmethod
    def of(cls, header: Sequence[str], file: Path, separator: str = ",") -> Columns:
        """The columns with these names.

        Raises:
            DataError: one that must be there is not, or two have one name; says which were found.
        """
        plain = {re.sub(r"[^a-z0-9]", "", name.casefold()): name for name in header}
        found = {
            role: next((plain[n] for n in names.split() if n in plain), "")
            for role, names in NAMES.items()
        }
        box = next((box for box, names in BOXES.items() if all(found[name] for name in names)), "")
        absent = [role for role in ("image", "class", "score") if not found[role]] + (
            [] if box else ["box"]
        )
        shown = ", ".join(map(shorten, header))
        if absent:
            sink = ": with supervision, `sink.append(detections, custom_data={'file': path})`" * (
                absent == ["image"]
            )
            problem = f"no column is known as {' or '.join(absent)} (found: {shown}). Write a first line like {EXAMPLE}"
            raise DataError(problem + sink, file=file)
        roles = ("image", "class", "score", *BOXES[box], *OPTIONAL)
        names = {role: found[role] for role in roles if found[role]}
        count = Counter(header)
        if twice := [name for name in names.values() if count[name] > 1]:
            raise DataError(
                f"two columns are called {shorten(twice[0])} (found: {shown}); rename one",
                file=file,
            )
        return cls(names, box, separator)

    @property
    def image_is_id(self) -> bool:
        """Whether the images are named by ids."""
        return self.names["image"].casefold().endswith("id")

    @property
    def first_class(self) -> int | None:
        """Number of the first class, see `farther.detectors.imported.formats.Results`."""
        return None if self.names["class"].casefold().startswith("cat") else 0

    @property
    def fields(self) -> dict[str, str]:
        """Name of the column of each field of COCO results."""
        box = ", ".join(self.names[name] for name in BOXES[self.box])
        names = {"image_id": "image", "category_id": "class", "score": "score"}
        own = {field: self.names[role] for field, role in names.items()}
        return {
            **own,
            **{name: self.names[name] for name in OPTIONAL if name in self.names},
            "bbox": box,
        }


def csv_columns(path: Path, header: Sequence[str] | None = None) -> Columns:
    """The columns of a CSV file; cells are separated by a comma, a semicolon or a tab.

    Args:
        path: The file.
        header: Names of its columns, where its first line does not have them.

    Raises:
        DataError: its first line names none, or see `Columns.of`.
    """
    line = next(iter(read_text(path).splitlines()), "")
    separator = max(",;\t", key=line.count)
    try:
        names = header or [
            name.strip() for name in next(csv.reader([line], delimiter=separator), [])
        ]
    except csv.Error as error:
        raise DataError(f"not readable CSV: {error}", file=path, row=1) from None
    if any(map(_is_number, names)):
        problem = (
            f"its first line names no columns (found: {shorten(line)}). Write one like {EXAMPLE}"
        )
        raise DataError(problem, file=path)
    return Columns.of(names, path, separator)


def csv_batches(
    path: Path, columns: Columns, header: Sequence[str] | None, size: int
) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """Line of the first row, and some rows of a CSV file, whose values are texts.

    Args:
        path: The file.
        columns: Those to read.
        header: See `csv_columns`.
        size: Most rows at once.

    Raises:
        DataError: it is not such a file.
    """
    text = read_text(path).encode()
    try:
        frame = pl.read_csv(
            text, has_header=not header, separator=columns.separator, infer_schema=False
        )
        frame.columns = list(header or [name.strip() for name in frame.columns])
        frame = frame.select(*columns.names.values())
    except pl.exceptions.NoDataError:
        return
    except pl.exceptions.PolarsError as error:
        raise DataError(f"not readable CSV: {first_line(error)}", file=path) from None
    first = 1 if header else 2
    for start in range(0, frame.height, size):
        yield first + start, frame[start : start + size].to_dicts()


def records_of(rows: list[Any], columns: Columns, file: Path, first: int) -> list[dict[str, Any]]:
    """The fields of COCO results of rows.

    Args:
        rows: Each with a value per column, a text or a number.
        columns: Which hold what.
        file, first: The file, and the number of the first row in it, for messages.

    Raises:
        DataError: a value is missing or not a number; names row and column.
    """
    names, records = columns.names, []
    for row, one in enumerate(rows, first):
        if not isinstance(one, dict):
            raise DataError(f"expected an object, found {shorten(one)}", file=file, row=row)
        if lacks := next((name for name in names.values() if one.get(name) in (None, "")), None):
            raise DataError("there is no value", file=file, row=row, field=lacks)
        decimal = "," if columns.separator == ";" else None
        value = {
            role: _number(one[name], decimal, file, row, name)
            for role, name in names.items()
            if role in BOXES[columns.box] or role in ("score", "uncertainty")
        }
        a, b, c, d = (value[role] for role in BOXES[columns.box])
        box = {
            "corners": (a, b, c - a, d - b),
            "centre": (a - c / 2, b - d / 2, c, d),
            "size": (a, b, c, d),
        }
        lists = {role: one[names[role]] for role in OPTIONAL[:-1] if role in names}
        read = {
            role: parse_json(text, file, row=row, field=names[role])
            if isinstance(text, str)
            else text
            for role, text in lists.items()
        }
        uncertainty = {"uncertainty": value["uncertainty"]} if "uncertainty" in value else {}
        records.append(
            {
                "image_id": _image_of(one[names["image"]]),
                "category_id": _class_of(one[names["class"]], decimal),
                "bbox": box[columns.box],
                "score": value["score"],
                **read,
                **uncertainty,
            }
        )
    return records


def _class_of(value: Any, decimal: str | None) -> Any:
    """A class: its number, also where it is written as 6.0; else its name."""
    text = value.replace(decimal, ".") if decimal and isinstance(value, str) else value
    number = whole_number(text)
    return value if number is None else number


def _image_of(value: Any) -> str:
    """An image's name, or its id, also where a table holds it as 139.0."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip()


def _number(value: Any, decimal: str | None, file: Path, row: int, field: str) -> float:
    text = value.replace(decimal, ".") if decimal and isinstance(value, str) else value
    if isinstance(text, bool) or not _is_number(text):
        raise DataError(
            f"expected a number, found {shorten(value)}", file=file, row=row, field=field
        )
    return float(text)


def _is_number(text: Any) -> bool:
    try:
        return isfinite(float(text))
    except (TypeError, ValueError):
        return False
