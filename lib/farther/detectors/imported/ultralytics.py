"""Detections of Ultralytics: `Results.to_json`, and text files of `save_txt=True save_conf=True`.

There is one file per image. See https://docs.ultralytics.com/reference/engine/results/.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from farther.detectors.imported.numbers import whole_number
from farther.errors import DataError
from farther.tables.files import read_text
from farther.tables.oriented import envelope_of_corners

#: Names of the columns of `flat_objects`, and of those of oriented boxes.
JSON_COLUMNS = ("name", "confidence", "x1", "y1", "x2", "y2", "image")
ORIENTED_JSON_COLUMNS = (*JSON_COLUMNS, "x3", "y3", "x4", "y4")
#: Columns of the lines of boxes that Ultralytics writes.
BOX_COLUMNS = ("class", "cx", "cy", "width", "height", "score")
#: Name of the columns of an outline, of any number of points x y, for `columns`.
POINTS = "points"
#: Largest number of cells of a line with a box: class, box, confidence, track.
BOX_CELLS = 7
#: Part of an image by which key points may lie outside of their box.
MARGIN = 0.02


@dataclass(frozen=True)
class TextRows:
    """Lines of a text file.

    Args:
        columns: Names of their columns.
        rows: One value per column, and the image.
        outlines: Number of rows whose box is the envelope of an outline or an oriented box.
    """

    columns: Sequence[str]
    rows: list[dict[str, Any]]
    outlines: int = 0


def flat_objects(path: Path, elements: Iterable[Any]) -> Iterator[Any]:
    """Yields the elements of a JSON file with the corners of their boxes and the image's name.

    Elements that are not objects with a box are yielded unchanged.
    """
    for element in elements:
        if isinstance(element, dict) and isinstance(element.get("box"), dict):
            others = {name: value for name, value in element.items() if name != "box"}
            yield {**others, **element["box"], "image": path.stem}
        else:
            yield element


def read_text_rows(path: Path, columns: Sequence[str]) -> TextRows:
    """The lines of a text file, whose numbers are separated by spaces.

    The image has the name of the file. A number after the last column is the id of a track. Lines
    of a segmentation network, and of one with oriented boxes, have the points of an outline in
    place of the box: they become the upright box around it.

    Args:
        path: The file.
        columns: Names of the columns, `BOX_COLUMNS` or others; with `POINTS`, lines are outlines.

    Raises:
        DataError: a line has another number of columns, or the key points of a pose network.
    """
    lines = []
    for number, text in enumerate(read_text(path).splitlines(), 1):
        lines.append(_Line(path, number, text.split()))
    is_usual = tuple(columns) == BOX_COLUMNS
    outlines = [line for line in lines if is_usual and len(line.cells) > BOX_CELLS]
    if POINTS in columns:
        outlines = lines
    elif 2 * sum(line.has_key_points() for line in outlines) > len(outlines):
        raise outlines[0].error(
            "a box and key points, as of a pose network, which are not read: give the boxes alone "
            "(result.to_json() without keypoints, or CSV). If they are outlines, set the parameter "
            f"'columns' to [class, {POINTS}, score]"
        )
    tracks = _are_tracks([line for line in outlines if len(line.cells) % 2])

    outline_numbers = {line.number for line in outlines}
    rows = []
    for line in lines:
        if line.number in outline_numbers:
            rows.append(line.outline(has_track=tracks and len(line.cells) % 2 == 1))
        else:
            rows.append(line.row(columns))
    names = BOX_COLUMNS if outlines else columns
    return TextRows(names, rows, len(outlines))


def _are_tracks(lines: Sequence[_Line]) -> bool:
    """Whether an odd number of numbers is a class, an outline, a confidence and a track's id.

    Raises:
        DataError: the confidence is missing, or cannot be told from a coordinate.
    """
    if not lines:
        return False
    tracks = [line.track for line in lines]
    if None not in tracks and any(track != 0 and track != 1 for track in tracks):
        return True
    first = lines[0]
    for line in lines:
        if line.track is None:
            first = line
            break
    raise first.error(
        f"{len(first.cells)} numbers: a class and an outline without a confidence, or a box and "
        "key points, which are not read. Of outlines, write the confidence, too: "
        "`yolo predict save_txt=True save_conf=True`, without tracks"
    )


@dataclass(frozen=True)
class _Line:
    """A line of a text file: its number from 1, and its cells."""

    file: Path
    number: int
    cells: list[str]

    @property
    def track(self) -> int | None:
        """The last cell as the id of a track; None if it cannot be one."""
        number = whole_number(self.cells[-1])
        return None if number is None or number < 0 else number

    def error(self, problem: str) -> DataError:
        """An error about the line."""
        return DataError(problem, file=self.file, row=self.number)

    def row(self, columns: Sequence[str]) -> dict[str, Any]:
        """One text per column."""
        count = len(self.cells)
        if count == len(columns) - 1 and "score" in columns:
            raise self.error(
                f"{count} numbers: the confidence is missing. Write it, too: "
                "`yolo predict save_txt=True save_conf=True`"
            )
        has_track = count == len(columns) + 1
        if has_track and self.track is None:
            raise self.error(
                f"{count} numbers, of which the last ({self.cells[-1]}) is not the id of a track: "
                "an outline without a confidence? Write it, too: "
                "`yolo predict save_txt=True save_conf=True`"
            )
        if count != len(columns) and not has_track:
            raise self.error(
                f"expected {len(columns)} numbers ({' '.join(columns)}), found {count}"
            )
        return {**dict(zip(columns, self.cells, strict=False)), "image": self.file.stem}

    def outline(self, *, has_track: bool) -> dict[str, Any]:
        """The box around an outline, with the columns `BOX_COLUMNS`."""
        end = len(self.cells) - has_track
        points = self.cells[1 : end - 1]
        if len(points) < 6 or len(points) % 2:
            raise self.error(
                f"expected a class, three points x y or more, and a confidence, "
                f"found {len(self.cells)} numbers"
            )
        xmin, ymin, xmax, ymax = envelope_of_corners(self._numbers(points))
        return {
            "class": self.cells[0],
            "cx": (xmin + xmax) / 2,
            "cy": (ymin + ymax) / 2,
            "width": xmax - xmin,
            "height": ymax - ymin,
            "score": self.cells[end - 1],
            "image": self.file.stem,
        }

    def has_key_points(self) -> bool:
        """Whether the numbers can be a box, points in it on all sides of its centre, and the rest.

        The first point of an outline has no others on all four sides, unless the outline is bent
        inwards there.
        """
        try:
            cx, cy, width, height = self._numbers(self.cells[1:5])
        except DataError:
            return False
        for count in (len(self.cells) - 6, len(self.cells) - 7):
            for step in (2, 3):
                if count < 2 * step or count % step:
                    continue
                points = self._numbers(self.cells[5 : 5 + count])
                x = [point for point in points[0::step] if point]
                y = [point for point in points[1::step] if point]
                if _surround(x, cx, width) and _surround(y, cy, height):
                    return True
        return False

    def _numbers(self, cells: Sequence[str]) -> list[float]:
        """The numbers in some cells."""
        try:
            numbers = [float(cell) for cell in cells]
        except ValueError as error:
            raise self.error(f"expected numbers: {error}") from None
        if not all(isfinite(number) for number in numbers):
            raise self.error("expected finite numbers")
        return numbers


def _surround(places: Sequence[float], centre: float, size: float) -> bool:
    """Whether places lie within an interval, on both sides of its centre."""
    if not places or abs(centre - 0.5) > 0.5:
        return False
    low = centre - size / 2 - MARGIN
    high = centre + size / 2 + MARGIN
    is_within = low <= min(places) and max(places) <= high
    return is_within and min(places) < centre < max(places)
