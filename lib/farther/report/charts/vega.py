"""Vega-Lite specifications with a description in words, colours and legends, and the CSV files behind them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from farther.errors import DataError

#: Okabe and Ito's colours, told apart with any colour vision; the palest last.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000", "#F0E442")

#: Letters that look like dashed lines, and Vega's dashes.
DASHES = (("━", [1, 0]), ("╍", [6, 3]), ("┉", [2, 2]))

#: Vega's marks, and letters that look like them.
SHAPES = (
    ("circle", "●"),
    ("square", "■"),
    ("triangle-up", "▲"),
    ("diamond", "◆"),
    ("cross", "✚"),
    ("triangle-down", "▼"),
)

#: Light and dark end of the colours of heat maps.
PALE, DEEP = "#F2F6FA", "#08519C"
INK = "#111111"

#: Axes and scales of shares.
PERCENT: dict[str, Any] = {"format": "~%", "tickCount": 5, "labelSeparation": 6}
UNIT: dict[str, Any] = {"domain": [0, 1]}


@dataclass(frozen=True)
class Key:
    """One entry of a legend: a name, its colour and a letter that looks like its mark."""

    name: str
    colour: str
    letter: str


@dataclass(frozen=True)
class Chart:
    """One chart.

    Args:
        title: Its heading.
        description: The chart in words, for screen readers.
        spec: Its Vega-Lite specification.
    """

    title: str
    description: str
    spec: dict[str, Any]


@dataclass(frozen=True)
class ChartGroup:
    """Charts that share a legend."""

    legend: tuple[Key, ...]
    charts: tuple[Chart, ...]


#: Vega reads all columns of CSV as text unless their types are given.
CSV = {"type": "csv", "parse": {"x": "number", "y": "number", "point": "number"}}


def chart(title: str, description: str, rows: pl.DataFrame | str, body: Mapping[str, Any]) -> Chart:
    """A chart as wide as its place on the page, which sets its fonts."""
    data = {"values": rows, "format": CSV} if isinstance(rows, str) else {"values": rows.to_dicts()}
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
    """A legend of lines that differ in colour and, between neighbours, in dashes."""
    count = len(COLOURS)
    return tuple(Key(name, COLOURS[k % count], DASHES[k % len(DASHES)][0]) for k, name in enumerate(names))


@dataclass(frozen=True)
class Axis:
    """An axis of a line chart.

    Args:
        title: Its title.
        format: Format of its numbers in d3's notation; `~%` for per cent.
        domain: Its ends; those of the lines when None.
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
    """A line chart."""
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


def line_rows(points: pl.DataFrame) -> str:
    """CSV of lines: series, point (order along the line), x, y.

    Args:
        points: The columns series, x, y; the points of each series in order.
    """
    numbered = points.select("series", pl.int_range(pl.len()).over("series").alias("point"), "x", "y")
    return numbered.write_csv(float_precision=4)


def read_csv(file: Path, columns: Mapping[str, type[pl.DataType]], optional: Collection[str] = ()) -> pl.DataFrame:
    """These columns of a CSV file, no rows where the file is absent or empty. An empty cell of a number is null."""
    if not file.exists() or not file.stat().st_size:
        return pl.DataFrame(schema=columns)
    try:
        texts = pl.read_csv(file, infer_schema=False).with_columns(pl.all().fill_null(""))
    except pl.exceptions.PolarsError as error:
        raise DataError(f"not a readable CSV file: {error}", file=file) from None
    read = {}
    for name, type_ in columns.items():
        if name not in texts.columns:
            if name in optional:
                continue
            raise DataError(f"there is no such column; found {', '.join(texts.columns)}", file=file, field=name)
        read[name] = texts[name] if type_ == pl.String else texts[name].cast(type_, strict=False)
        wrong = (read[name].is_null() & (texts[name] != "")).arg_true()
        if len(wrong):
            raise DataError(f"expected a number, found {texts[name][wrong[0]]!r}", file=file, row=wrong[0], field=name)
    return pl.DataFrame(read)
