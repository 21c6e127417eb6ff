"""Vega-Lite specifications with a description in words, and the CSV files behind them.

A specification is a plain dict: Vega-Lite's documentation applies word for word.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path
from typing import Any

import polars as pl

from farther.errors import DataError
from farther.tables.files import is_present, regular_file

#: Okabe and Ito's colours, told apart with any colour vision; the palest last.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000", "#F0E442")

#: Letters that look like dashed lines, and Vega's dashes.
DASHES = {"━": [1, 0], "╍": [6, 3], "┉": [2, 2]}

#: Letters that look like Vega's marks, and the marks.
SHAPES = {
    "●": "circle",
    "■": "square",
    "▲": "triangle-up",
    "◆": "diamond",
    "✚": "cross",
    "▼": "triangle-down",
}

#: Light and dark end of the colours of heat maps, and the colour of text.
PALE = "#F2F6FA"
DEEP = "#08519C"
INK = "#111111"

#: The mark of stacked bars.
STACKED: dict[str, Any] = {"type": "bar", "stroke": "white", "strokeWidth": 1}

#: Axes and scales of shares.
PERCENT: dict[str, Any] = {"format": "~%", "tickCount": 5, "labelSeparation": 6}
UNIT: dict[str, Any] = {"domain": [0, 1]}
#: A scale that ends at round numbers near the values.
ROUND: dict[str, Any] = {"zero": False, "nice": True}


#: Charts as figures of a paper, as `farther.report.charts.figures` and pages save them: the widths
#: of one and of two columns, pixels to an inch, with which letters of 12 pixels have 8 points, and
#: Vega-Lite's configuration.
FIGURES: dict[str, Any] = {
    "inches": [3.3, 6.9],
    "pixels": 108,
    "dpi": 300,
    "config": {
        "background": "white",
        "padding": {"left": 5, "top": 5, "right": 14, "bottom": 5},
        "font": "Helvetica, Arial, sans-serif",
        "title": {"anchor": "start", "fontSize": 12},
        "axis": {
            "labelFontSize": 12,
            "titleFontSize": 12,
            "titleFontWeight": "normal",
            "labelLimit": 160,
        },
        "legend": {"orient": "top", "title": None, "labelFontSize": 12, "labelLimit": 0},
        "view": {"stroke": None},
    },
}


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

    legend: tuple[Key, ...] = ()
    charts: tuple[Chart, ...] = ()


def of_run(group: ChartGroup, run: str, title: str) -> ChartGroup:
    """The charts with the run that they are of, which figures of a paper name.

    Args:
        group: The charts.
        run: The run, which begins the names of a figure's files.
        title: Its title, which ends that of a figure.
    """
    charts = tuple(chart_of_run(one, run, title) for one in group.charts)
    return replace(group, charts=charts)


def chart_of_run(chart: Chart, run: str, title: str) -> Chart:
    """A chart with the run that it is of; see `of_run`."""
    metadata = {**chart.spec["usermeta"], "run": run, "subject": title}
    return replace(chart, spec={**chart.spec, "usermeta": metadata})


#: Vega reads all columns of CSV as text unless their types are given.
CSV = {"type": "csv", "parse": {"x": "number", "y": "number", "point": "number"}}

Channel = Mapping[str, Any]


def chart(
    title: str,
    description: str,
    rows: pl.DataFrame | str,
    *layers: dict[str, Any],
    height: float = 240,
    step: float | None = None,
    **encoding: Any,
) -> Chart:
    """A chart as wide as its place on the page, which sets its fonts.

    Args:
        title, description: Its heading, and the chart in words.
        rows: Its data; a text is CSV, see `line_rows`.
        layers: From `layer`, the lowest first.
        height: In pixels.
        step: Height of each row of a chart whose y has names, instead of `height`. Given as
            Vega-Lite's own step, Vega-Lite would warn that it cannot fit the chart's height to its
            place.
        encoding: Channels that all layers have.
    """
    if isinstance(rows, pl.DataFrame) and step is not None:
        names = rows[encoding["y"]["field"]].n_unique()
        height = step * max(names, 1)
    if isinstance(rows, str):
        data: dict[str, Any] = {"values": rows, "format": CSV}
    else:
        data = {"values": rows.to_dicts()}
    if len(layers) == 1:
        body = {**layers[0], "encoding": {**encoding, **layers[0]["encoding"]}}
    else:
        body = {"encoding": encoding, "layer": list(layers)}
    encodings = [encoding, *(layer["encoding"] for layer in layers)]
    spec = {
        "width": "container",
        "description": description,
        "data": data,
        **body,
        "height": height,
        "usermeta": {"title": title, "entry": _legend_entry_width(encodings)},
    }
    return Chart(title, description, spec)


def _legend_entry_width(encodings: Iterable[Mapping[str, Any]]) -> int:
    """About the width in pixels of the widest entry of the legend.

    A figure has as many entries in a row of its legend as fit.
    """
    longest = 0
    for encoding in encodings:
        for channel in encoding.values():
            if not isinstance(channel, dict):
                continue
            for name in channel.get("scale", {}).get("domain", ()):
                if isinstance(name, str):
                    longest = max(longest, len(name))
    return 35 + 7 * longest


def layer(
    mark: str | Channel, rows: Sequence[Mapping[str, Any]] | None = None, /, **encoding: Any
) -> dict[str, Any]:
    """A mark with its channels, and its own data where it has some."""
    if rows is None:
        return {"mark": mark, "encoding": encoding}
    return {"data": {"values": rows}, "mark": mark, "encoding": encoding}


def point_mark(size: int, opacity: float = 1, **style: Any) -> dict[str, Any]:
    """The mark of filled points."""
    return {"type": "point", "filled": True, "size": size, "opacity": opacity, **style}


def quantitative(field: str, **options: Any) -> dict[str, Any]:
    """A channel that shows numbers."""
    return {"field": field, "type": "quantitative", **options}


def nominal(field: str, **options: Any) -> dict[str, Any]:
    """A channel that shows names."""
    return {"field": field, "type": "nominal", **options}


def tooltip(*fields: str) -> list[dict[str, Any]]:
    """Channels of a tooltip.

    Args:
        fields: "name" of a field of names, or "name:format" of one of numbers, where the format may
            be empty; either may be followed by a space and a title.

    >>> tooltip("fate outcome", "share:.1%")[1]
    {'field': 'share', 'type': 'quantitative', 'format': '.1%'}
    """
    channels = []
    for text in fields:
        field_and_format, _, title = text.partition(" ")
        field, is_number, format_ = field_and_format.partition(":")
        options = {}
        if format_:
            options["format"] = format_
        if title:
            options["title"] = title
        if is_number:
            channels.append(quantitative(field, **options))
        else:
            channels.append(nominal(field, **options))
    return channels


def links_to(field: str) -> dict[str, Any]:
    """Channels of marks that are links.

    A page has them, and a figure of a paper does not; see `without_links`.

    Args:
        field: Holds the addresses.
    """
    return {"href": nominal(field)}


def without_links(spec: Mapping[str, Any]) -> dict[str, Any]:
    """A specification whose marks are no links, and whose data have no addresses."""
    plain = dict(spec)
    channels = dict(plain.get("encoding", {}))
    link = channels.pop("href", None)
    if link is not None:
        plain["encoding"] = channels
        rows = [dict(row) for row in plain["data"]["values"]]
        for row in rows:
            row.pop(link["field"], None)
        plain["data"] = {**plain["data"], "values": rows}
    return plain


def legend_channels(
    field: str, legend: Sequence[Key], **letters: Mapping[str, Any]
) -> dict[str, Any]:
    """Channels that tell apart the entries of a legend.

    A page has the legend above its charts, and a figure within it.

    Args:
        field: Holds the entries' names.
        legend: The entries.
        letters: `shape=SHAPES` or `strokeDash=DASHES`, beside the colour.
    """
    names = [key.name for key in legend]
    range_by_channel: dict[str, list[Any]] = {"color": [key.colour for key in legend]}
    for channel, value_by_letter in letters.items():
        range_by_channel[channel] = [value_by_letter[key.letter] for key in legend]
    channels = {}
    for channel, values in range_by_channel.items():
        channels[channel] = nominal(field, scale={"domain": names, "range": values})
    return channels


def legend_keys(names: Iterable[str], letters: Iterable[str]) -> tuple[Key, ...]:
    """A legend of names that differ in colour and, between neighbours, in their letters."""
    legend = []
    for name, colour, letter in zip(names, cycle(COLOURS), cycle(letters), strict=False):
        legend.append(Key(name, colour, letter))
    return tuple(legend)


def describe_rows(template: str, rows: pl.DataFrame | Iterable[Mapping[str, Any]]) -> str:
    """The rows in words, one after the other.

    >>> describe_rows(
    ...     "{name} {share:.0%}", [{"name": "near", "share": 0.25}, {"name": "far", "share": 0.5}]
    ... )
    'near 25%; far 50%'
    """
    if isinstance(rows, pl.DataFrame):
        rows = rows.to_dicts()
    return "; ".join(template.format_map(row) for row in rows)


def heat_map(
    title: str,
    description: str,
    cells: pl.DataFrame,
    value: str,
    text: Channel,
    scale: Mapping[str, Any] | None = None,
    **options: Any,
) -> Chart:
    """Tiles with numbers.

    Args:
        title, description, cells, options: As of `chart`.
        value: Field of the colours.
        text: Channel of the numbers.
        scale: Of the colours; from pale to deep when None.
    """
    text_colour: dict[str, Any] = {"value": INK}
    if scale is None:
        deepest = max(0.01, *cells[value])
        scale = {"domain": [0, deepest], "range": [PALE, DEEP]}
        text_colour = {
            "condition": {"test": f"datum.{value} * 2 > {deepest}", "value": "white"},
            "value": INK,
        }
    return chart(
        title,
        description,
        cells,
        layer(
            {"type": "rect", "stroke": "white"}, color=quantitative(value, scale=scale, legend=None)
        ),
        layer({"type": "text", "fontSize": 12}, text=text, color=text_colour),
        **options,
    )


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
        scale = ROUND
        if self.domain is not None:
            scale = {"domain": list(self.domain)}
        return {
            "title": self.title,
            "axis": {"format": self.format, "tickCount": 5},
            "scale": scale,
        }

    @property
    def tooltip(self) -> dict[str, Any]:
        """Its title, and the format of a point's number."""
        return {"title": self.title, "format": ".1%" if self.format == "~%" else ".3~f"}


def lines(
    title: str, description: str, points: pl.DataFrame, legend: Sequence[Key], x: Axis, y: Axis
) -> Chart:
    """A line chart of points with the columns series, x and y."""
    return chart(
        title,
        description,
        line_rows(points),
        layer({"type": "line", "strokeWidth": 2}),
        x=quantitative("x", **x.channel),
        y=quantitative("y", **y.channel),
        order=quantitative("point"),
        tooltip=[nominal("series"), quantitative("x", **x.tooltip), quantitative("y", **y.tooltip)],
        **legend_channels("series", legend, strokeDash=DASHES),
    )


def line_group(title: str, description: str, points: pl.DataFrame, x: Axis, y: Axis) -> ChartGroup:
    """A line chart with the legend of its series; without a chart where there are no points."""
    if points.is_empty():
        return ChartGroup()
    legend = legend_keys(points["series"].unique(maintain_order=True), DASHES)
    return ChartGroup(legend, (lines(title, description, points, legend, x, y),))


def series(points: Mapping[str, Iterable[tuple[float | None, float | None]]]) -> pl.DataFrame:
    """Lines by their names as a frame for `line_group`; points without a number are left out."""
    rows = []
    for name, line in points.items():
        for x, y in line:
            rows.append((name, x, y))
    schema = {"series": pl.String, "x": pl.Float64, "y": pl.Float64}
    return pl.DataFrame(rows, schema=schema, orient="row", strict=False).drop_nulls()


def line_rows(points: pl.DataFrame) -> str:
    """CSV of lines: series, point (the order along the line), x and y.

    Args:
        points: Columns series, x and y, each line's rows in the order of its points.
    """
    position = pl.int_range(pl.len()).over("series").alias("point")
    return points.select("series", position, "x", "y").write_csv(float_precision=4)


def read_csv(
    file: Path, columns: Mapping[str, type[pl.DataType]], optional: Collection[str] = ()
) -> pl.DataFrame:
    """Columns of a CSV file; no rows where the file is absent or empty.

    Args:
        file: The file.
        columns: Name → type: `pl.String`, or a type of numbers, in which an empty cell is null.
        optional: Columns that the file may lack.

    Raises:
        DataError: the file cannot be read, lacks a column, or has a text where a number belongs.
    """
    if not is_present(file) or not regular_file(file).stat().st_size:
        return pl.DataFrame(schema=columns)
    try:
        texts = pl.read_csv(file, infer_schema=False).with_columns(pl.all().fill_null(""))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise DataError(f"not a readable CSV file: {error}", file=file) from None
    series_by_column = {}
    for name, type_ in columns.items():
        if name in texts.columns:
            series_by_column[name] = _parse_column(texts[name], type_, file)
        elif name not in optional:
            raise DataError(
                f"there is no such column; found {', '.join(texts.columns)}", file=file, field=name
            )
    return pl.DataFrame(series_by_column)


def _parse_column(texts: pl.Series, type_: type[pl.DataType], file: Path) -> pl.Series:
    """A column with its type; DataError where a text is not a number."""
    if type_ == pl.String:
        return texts
    values = texts.cast(type_, strict=False)
    wrong_rows = (values.is_null() & (texts != "")).arg_true()
    if len(wrong_rows):
        row = wrong_rows[0]
        raise DataError(
            f"expected a number, found {texts[row]!r}", file=file, row=row, field=texts.name
        )
    return values
