"""The first figure: outcomes of unknown objects at each distance, one panel per detector."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import polars as pl

from farther.report.charts import vega as vl
from farther.report.charts.results import OUTCOME_KEYS

#: Smallest share whose number fits into its part of a bar.
PRINTED = 0.055


def panels(rows: pl.DataFrame) -> vl.ChartGroup:
    """One chart per panel of `farther.report.distances.Distances.rows`."""
    found = tuple(_panel(title, rows.filter(panel=title)) for title in rows["panel"].unique(maintain_order=True))
    return vl.ChartGroup(OUTCOME_KEYS, found)


def figure(rows: pl.DataFrame) -> dict[str, Any]:
    """All panels in one specification, for files: SVG, PNG and PDF."""
    found = []
    for panel in panels(rows).charts:
        bars = rows.filter(panel=panel.title)["distance"].n_unique()
        body = {key: value for key, value in panel.spec.items() if key not in ("width", "description")}
        bar, *others = body["layer"]
        legend = {"title": None, "orient": "top", "direction": "horizontal"}
        bar = {**bar, "encoding": {**bar["encoding"], "color": {**bar["encoding"]["color"], "legend": legend}}}
        found.append({**body, "layer": [bar, *others], "width": 64 * bars, "height": 260, "title": panel.title})
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "background": "white",
        "config": {"view": {"stroke": None}, "font": "sans-serif", "legend": {"labelFontSize": 13}},
        "columns": 5,
        "concat": found,
    }


def drawn(rows: pl.DataFrame, formats: Sequence[str]) -> dict[str, bytes]:
    """The figure as files: format ("svg", "png" or "pdf") → content."""
    import vl_convert

    spec = figure(rows)
    svg = vl_convert.vegalite_to_svg(spec)
    one_weight = re.sub(r' font-weight="\w+"', "", svg)  # the order in which two fonts are embedded in a PDF is random
    made = {
        "svg": lambda: svg.encode(),
        "png": lambda: bytes(vl_convert.svg_to_png(svg, scale=2)),
        "pdf": lambda: bytes(vl_convert.svg_to_pdf(one_weight)),
    }
    return {name: made[name]() for name in formats}


def _panel(title: str, rows: pl.DataFrame) -> vl.Chart:
    end = pl.col("share").cum_sum().over("distance")
    is_top = pl.col("outcome") == "misclassified"
    parts = rows.with_columns(end=end, start=end - pl.col("share")).with_columns(
        at=pl.concat_str("distance", "known", pl.col("objects").cast(pl.String), separator="|"),
        middle=(pl.col("start") + pl.col("end")) / 2,
        text=pl.when(pl.col("share") >= PRINTED)
        .then(pl.format("{}%", (100 * pl.col("share")).round().cast(pl.Int64)))
        .otherwise(pl.lit("")),
        # Found grows from below and misclassified from above, so that both intervals can be read off the axis.
        whisker_low=pl.when(is_top).then(1 - pl.col("high")).otherwise("low"),
        whisker_high=pl.when(is_top).then(1 - pl.col("low")).otherwise("high"),
    )
    order = parts["at"].unique(maintain_order=True).to_list()
    x = vl.named(
        "at",
        title=None,
        sort=order,
        axis={"labelAngle": 0, "labelExpr": "split(datum.label, '|')", "ticks": False, "domain": False},
    )
    tooltip = [
        vl.named("distance"),
        vl.named("run"),
        vl.named("outcome"),
        vl.number("share", format=".1%"),
        vl.number("low", format=".1%", title="95% interval from"),
        vl.number("high", format=".1%", title="to"),
        vl.number("objects", title="unknown objects"),
    ]
    whiskers = {"filter": "datum.outcome != 'missed' && isValid(datum.low)"}
    body = {
        "height": 230,
        "encoding": {"x": x},
        "layer": [
            {
                "mark": {"type": "bar", "stroke": "white", "strokeWidth": 1, "width": {"band": 0.8}},
                "encoding": {
                    "y": vl.number("start", title=None, scale=vl.UNIT, axis=vl.PERCENT),
                    "y2": {"field": "end"},
                    "color": vl.named("outcome", scale=vl.colours(OUTCOME_KEYS), legend=None),
                    "tooltip": tooltip,
                },
            },
            {
                "transform": [whiskers],
                "mark": {"type": "rule", "strokeWidth": 1.5, "color": vl.INK, "xOffset": 17},
                "encoding": {"y": vl.number("whisker_low", title=None), "y2": {"field": "whisker_high"}},
            },
            {
                "mark": {"type": "text", "fontSize": 13, "fontWeight": 600, "xOffset": -5},
                "encoding": {
                    "y": vl.number("middle", title=None),
                    "text": vl.named("text"),
                    "color": {"condition": {"test": "datum.outcome == 'found'", "value": "white"}, "value": vl.INK},
                },
            },
        ],
    }
    text = "; ".join(
        f"{row['distance']} ({row['objects']} objects): {100 * row['share']:.0f}% {row['outcome']}"
        for row in rows.iter_rows(named=True)
    )
    shares = ("share", "low", "high", "start", "end", "middle", "whisker_low", "whisker_high")
    names = ("at", "distance", "run", "outcome", "objects", "text")
    kept = parts.select(*names, *(pl.col(name).round(4) for name in shares))
    return vl.chart(title, f"Outcomes of unknown objects with {title}. {text}.", kept, body)
