"""Vega-Lite specifications with a description in words, colours and legends, and the CSV files behind them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import polars as pl

from farther.errors import DataError
from farther.tables.files import regular_file

#: Okabe and Ito's colours, told apart with any colour vision; the palest last.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000", "#F0E442")

#: Letters that look like dashed lines, and Vega's dashes.
DASHES = {"━": [1, 0], "╍": [6, 3], "┉": [2, 2]}

#: Letters that look like Vega's marks, and the marks.
SHAPES = {"●": "circle", "■": "square", "▲": "triangle-up", "◆": "diamond", "✚": "cross", "▼": "triangle-down"}

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
    """One chart: its heading, the chart in words (for screen readers), and its Vega-Lite specification."""

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
    height = {"height": _height(rows, body)} if isinstance(rows, pl.DataFrame) and "height" in body else {}
    return Chart(title, description, {"width": "container", "description": description, "data": data, **body, **height})


def _height(rows: pl.DataFrame, body: Mapping[str, Any]) -> int | float:
    """The height of a chart; where it is given as a step, that of all its rows, as Vega-Lite would compute it.

    With a step, Vega-Lite warns that it cannot fit the chart's height to its place.
    """
    height = body["height"]
    if isinstance(height, Mapping):
        layers: list[Mapping[str, Any]] = [body, *body.get("layer", ())]
        y = next(layer["encoding"]["y"] for layer in layers if "y" in layer.get("encoding", {}))
        height = height["step"] * max(rows[y["field"]].n_unique(), 1)
    return height


def number(field: str, **options: Any) -> dict[str, Any]:
    """A channel that shows numbers."""
    return {"field": field, "type": "quantitative", **options}


def named(field: str, **options: Any) -> dict[str, Any]:
    """A channel that shows names."""
    return {"field": field, "type": "nominal", **options}


def colours(legend: Sequence[Key]) -> dict[str, Any]:
    """The colour of each entry."""
    return {"domain": [key.name for key in legend], "range": [key.colour for key in legend]}


def marks(legend: Sequence[Key], by_letter: Mapping[str, Any]) -> dict[str, Any]:
    """The dashes (`DASHES`) or shapes (`SHAPES`) of each entry, by its letter."""
    return {"domain": [key.name for key in legend], "range": [by_letter[key.letter] for key in legend]}


def keys(names: Iterable[str], letters: Iterable[str]) -> tuple[Key, ...]:
    """A legend of names that differ in colour and, between neighbours, in their letters."""
    return tuple(Key(*parts) for parts in zip(names, cycle(COLOURS), cycle(letters), strict=False))


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
    def channel(self) -> dict[str, Any]:
        """Its title, ticks and range."""
        scale: dict[str, Any] = {"zero": False, "nice": True} if self.domain is None else {"domain": list(self.domain)}
        return {"title": self.title, "axis": {"format": self.format, "tickCount": 5}, "scale": scale}

    @property
    def tooltip(self) -> dict[str, Any]:
        """Its title, and the format of a point's number."""
        return {"title": self.title, "format": ".1%" if self.format == "~%" else ".3~f"}


def lines(title: str, description: str, rows: str, legend: Sequence[Key], x: Axis, y: Axis) -> Chart:
    """A line chart."""
    body = {
        "height": 240,
        "mark": {"type": "line", "strokeWidth": 2},
        "encoding": {
            "x": number("x", **x.channel),
            "y": number("y", **y.channel),
            "color": named("series", scale=colours(legend), legend=None),
            "strokeDash": named("series", scale=marks(legend, DASHES), legend=None),
            "order": number("point"),
            "tooltip": [named("series"), number("x", **x.tooltip), number("y", **y.tooltip)],
        },
    }
    return chart(title, description, rows, body)


def line_rows(points: pl.DataFrame) -> str:
    """CSV of lines: series, point (order along the line), x, y; of frames with series, x, y in the order of points."""
    numbered = points.select("series", pl.int_range(pl.len()).over("series").alias("point"), "x", "y")
    return numbered.write_csv(float_precision=4)


def read_csv(file: Path, columns: Mapping[str, type[pl.DataType]], optional: Collection[str] = ()) -> pl.DataFrame:
    """These columns of a CSV file, no rows where the file is absent or empty. An empty cell of a number is null."""
    if not file.exists() or not regular_file(file).stat().st_size:
        return pl.DataFrame(schema=columns)
    try:
        texts = pl.read_csv(file, infer_schema=False).with_columns(pl.all().fill_null(""))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
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
