"""Detections of Ultralytics: `Results.to_json`, and text files of `save_txt=True save_conf=True`.

There is one file per image. See https://docs.ultralytics.com/reference/engine/results/.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from farther.errors import DataError
from farther.tables.files import read_text

#: Names of the columns of `flat_objects`.
JSON_COLUMNS = ("name", "confidence", "x1", "y1", "x2", "y2", "image")


def flat_objects(path: Path, elements: Iterable[Any]) -> Iterator[Any]:
    """Yields the elements of a JSON file with the corners of their boxes and the image's name.

    Elements that are not objects with a box are yielded unchanged.
    """
    for element in elements:
        if isinstance(element, dict) and isinstance(element.get("box"), dict):
            yield {**element, **element["box"], "image": path.stem}
        else:
            yield element


def read_text_rows(path: Path, columns: Sequence[str]) -> list[dict[str, Any]]:
    """The lines of a text file, whose numbers are separated by spaces; one text per column.

    The image has the name of the file. A number after the last column is the id of a track.

    Args:
        path: The file.
        columns: Names of the columns.

    Raises:
        DataError: a line has another number of columns.
    """
    rows = []
    for number, line in enumerate(read_text(path).splitlines(), 1):
        cells = line.split()
        if len(cells) == len(columns) - 1 and "score" in columns:
            raise DataError(
                f"{len(cells)} numbers: the confidence is missing. Write it, too: "
                "`yolo predict save_txt=True save_conf=True`",
                file=path,
                row=number,
            )
        if len(cells) not in (len(columns), len(columns) + 1):
            raise DataError(
                f"expected {len(columns)} numbers ({' '.join(columns)}), found {len(cells)}",
                file=path,
                row=number,
            )
        row = dict(zip(columns, cells, strict=False))
        row["image"] = path.stem
        rows.append(row)
    return rows
