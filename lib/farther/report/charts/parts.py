"""What all figures are made of: colours, legends, and a specification with words for those who cannot see it."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from farther.errors import DataError

#: Okabe and Ito's colours, told apart with any colour vision; the palest last.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000", "#F0E442")

#: Letters that look like dashed lines, and Vega's dashes.
DASHES = (("━", [1, 0]), ("╍", [6, 3]), ("┉", [2, 2]))

#: Vega's names of marks, and the letters that look like them.
SHAPES = (
    ("circle", "●"),
    ("square", "■"),
    ("triangle-up", "▲"),
    ("diamond", "◆"),
    ("cross", "✚"),
    ("triangle-down", "▼"),
)

#: The light, and the dark end of the colours of heat maps.
PALE, DEEP = "#F2F6FA", "#08519C"
INK = "#111111"

#: Axes and scales of shares.
PERCENT: dict[str, Any] = {"format": "~%", "tickCount": 5}
UNIT: dict[str, Any] = {"domain": [0, 1]}


@dataclass(frozen=True)
class Key:
    """One entry of a legend: a name, its colour and a letter that looks like its mark."""

    name: str
    colour: str
    letter: str


@dataclass(frozen=True)
class Chart:
    """One figure.

    Args:
        title: Its heading.
        description: What it shows, for those who cannot see it.
        spec: Its Vega-Lite specification.
    """

    title: str
    description: str
    spec: dict[str, Any]


@dataclass(frozen=True)
class Figures:
    """Figures that share a legend."""

    legend: tuple[Key, ...]
    charts: tuple[Chart, ...]


#: Vega takes what it reads from CSV for text unless it is told.
CSV = {"type": "csv", "parse": {"x": "number", "y": "number", "point": "number"}}


def chart(title: str, description: str, rows: Sequence[Mapping[str, Any]] | str, body: Mapping[str, Any]) -> Chart:
    """A figure as wide as the place where it stands; fonts and colours of axes come with the page.

    Args:
        title, description: see `Chart`.
        rows: What is drawn: mappings, or CSV as `series_rows` writes it.
        body: The rest of the specification, in Vega-Lite's words.
    """
    data = {"values": rows, "format": CSV} if isinstance(rows, str) else {"values": rows}
    return Chart(title, description, {"width": "container", "description": description, "data": data, **body})


def number(field: str, **options: Any) -> dict[str, Any]:
    """A channel that shows numbers."""
    return {"field": field, "type": "quantitative", **options}


def named(field: str, **options: Any) -> dict[str, Any]:
    """A channel that shows names."""
    return {"field": field, "type": "nominal", **options}


def colours(legend: Sequence[Key]) -> dict[str, Any]:
    """The colour of each entry."""
    return {"domain": [key.name for key in legend], "range": [key.colour for key in legend]}


def dashes(legend: Sequence[Key]) -> dict[str, Any]:
    """The dashes of each entry whose letter is one of `DASHES`."""
    patterns = dict(DASHES)
    return {"domain": [key.name for key in legend], "range": [patterns[key.letter] for key in legend]}


def line_keys(names: Sequence[str]) -> tuple[Key, ...]:
    """A legend of lines: each has a colour, and neighbours have other dashes, so that colour is never alone."""
    count = len(COLOURS)
    return tuple(Key(name, COLOURS[k % count], DASHES[k % len(DASHES)][0]) for k, name in enumerate(names))


@dataclass(frozen=True)
class Axis:
    """An axis of a figure of lines.

    Args:
        title: What it shows.
        format: How its numbers are printed, in d3's letters; `~%` for per cent.
        domain: From where to where it goes; as far as the lines when None.
    """

    title: str
    format: str = "~%"
    domain: tuple[float, float] | None = (0, 1)

    @property
    def axis(self) -> dict[str, Any]:
        """Its ticks."""
        return {"format": self.format, "tickCount": 5}

    @property
    def scale(self) -> dict[str, Any]:
        """Its range."""
        return {"zero": False, "nice": True} if self.domain is None else {"domain": list(self.domain)}


def lines(title: str, description: str, rows: str, legend: Sequence[Key], x: Axis, y: Axis) -> Chart:
    """Lines over each other.

    Args:
        title, description: see `Chart`.
        rows: CSV with the columns `series`, `point` (order along the line), `x`, `y`: in a page, a tenth of the size of
            the same rows as JSON.
        legend: An entry a series; see `line_keys`.
        x, y: The axes.
    """
    body = {
        "height": 240,
        "mark": {"type": "line", "strokeWidth": 2},
        "encoding": {
            "x": number("x", title=x.title, axis=x.axis, scale=x.scale),
            "y": number("y", title=y.title, axis=y.axis, scale=y.scale),
            "color": named("series", scale=colours(legend), legend=None),
            "strokeDash": named("series", scale=dashes(legend), legend=None),
            "order": number("point"),
            "tooltip": [named("series"), _tooltip("x", x), _tooltip("y", y)],
        },
    }
    return chart(title, description, rows, body)


def _tooltip(field: str, axis: Axis) -> dict[str, Any]:
    return number(field, title=axis.title, format=".1%" if axis.format == "~%" else ".3~f")


def series_rows(series: Iterable[tuple[str, Iterable[tuple[float, float]]]]) -> str:
    """The rows of `lines`, of each series in turn."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["series", "point", "x", "y"])
    for name, points in series:
        for point, (x, y) in enumerate(points):
            writer.writerow([name, point, f"{x:.4f}", f"{y:.4f}"])
    return text.getvalue()


def read_rows(file: Path, expected: str, read: Callable[[dict[str, str]], Any]) -> Iterator[Any]:
    """What `read` makes of each row of a CSV file; [] where there is no such file.

    Args:
        file: The file.
        expected: What the message says a row should have held.
        read: Makes a value of a row; a `KeyError`, `TypeError` or `ValueError` from it means that the row is damaged.

    Raises:
        DataError: a row is damaged; names it.
    """
    if not file.exists():
        return
    with file.open(newline="", encoding="utf-8") as text:
        for row, line in enumerate(csv.DictReader(text)):
            try:
                yield read(line)
            except (KeyError, TypeError, ValueError):
                raise DataError(f"expected {expected}", file=file, row=row) from None
