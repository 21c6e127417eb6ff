"""The first figure: outcomes of unknown objects at each distance, one panel per detector."""

from __future__ import annotations

import copy
from typing import Any

import polars as pl

from farther.report.charts import vega as vl
from farther.report.charts.results import OUTCOMES

#: From below: what is found of all objects, and what only proposals find, then the others.
KEYS = (
    OUTCOMES["tp_u"],
    vl.Key("found by proposals", "#7FBFDF", "■"),
    OUTCOMES["fn_misclassified"],
    OUTCOMES["fn_missed"],
)

#: Smallest share whose number fits into its part of a bar.
PRINTED = 0.055


def panels(rows: pl.DataFrame) -> vl.ChartGroup:
    """One chart per panel of `farther.report.distances.Distances.rows`."""
    found = (
        _panel(title, rows.filter(panel=title))
        for title in rows["panel"].unique(maintain_order=True)
    )
    return vl.ChartGroup(_keys(rows), tuple(found))


def figure(rows: pl.DataFrame) -> dict[str, Any]:
    """All panels in one specification, for files: SVG, PNG and PDF."""
    found = []
    for panel in panels(rows).charts:
        spec = copy.deepcopy(panel.spec)
        width = 62 * rows.filter(panel=panel.title)["distance"].n_unique()
        del spec["description"], spec["usermeta"]
        found.append({**spec, "width": width, "height": 200, "title": panel.title})
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "config": vl.FIGURES["config"],
        "columns": 3,
        "concat": found,
    }


def _keys(rows: pl.DataFrame) -> tuple[vl.Key, ...]:
    shown = set(rows["outcome"].unique())
    return tuple(key for key in KEYS if key.name in shown)


def _panel(title: str, rows: pl.DataFrame) -> vl.Chart:
    end = pl.col("share").cum_sum().over("distance")
    is_top = pl.col("outcome") == "misclassified"
    parts = rows.with_columns(end=end, start=end - pl.col("share")).with_columns(
        at=pl.concat_str("distance", "known", pl.col("objects").cast(pl.String), separator="|"),
        middle=(pl.col("start") + pl.col("end")) / 2,
        text=pl.when(pl.col("share") >= PRINTED)
        .then(pl.format("{}%", (100 * pl.col("share")).round().cast(pl.Int64)))
        .otherwise(pl.lit("")),
        # Found grows from below and misclassified from above, so that both intervals can be read
        # off the axis.
        whisker_low=pl.when(is_top).then(1 - pl.col("high")).otherwise("low"),
        whisker_high=pl.when(is_top).then(1 - pl.col("low")).otherwise("high"),
    )
    whiskers = vl.layer(
        {"type": "rule", "strokeWidth": 1.5, "color": vl.INK, "xOffset": 15},
        y=vl.number("whisker_low", title=None),
        y2={"field": "whisker_high"},
    )
    text = vl.said("{distance} ({objects} objects): {share:.0%} {outcome}", rows)
    shares = ("share", "low", "high", "start", "end", "middle", "whisker_low", "whisker_high")
    names = ("at", "distance", "run", "outcome", "objects", "text")
    return vl.chart(
        title,
        f"Outcomes of unknown objects with {title}. {text}.",
        parts.select(*names, *(pl.col(name).round(4) for name in shares)),
        vl.layer(
            {**vl.STACKED, "width": {"band": 0.9}},
            y=vl.number("start", title=None, scale=vl.UNIT, axis=vl.PERCENT),
            y2={"field": "end"},
            tooltip=vl.tooltip(
                *(
                    "distance",
                    "run",
                    "outcome",
                    "share:.1%",
                    "low:.1% 95% interval from",
                    "high:.1% to",
                ),
                "objects: unknown objects",
            ),
            **vl.by("outcome", _keys(rows)),
        ),
        {
            "transform": [
                {
                    "filter": "(datum.outcome == 'found' || datum.outcome == 'misclassified') && isValid(datum.low)"
                }
            ],
            **whiskers,
        },
        vl.layer(
            {"type": "text", "fontSize": 12, "fontWeight": 600, "xOffset": -2},
            y=vl.number("middle", title=None),
            text=vl.named("text"),
            color={
                "condition": {"test": "datum.outcome == 'found'", "value": "white"},
                "value": vl.INK,
            },
        ),
        height=230,
        x=vl.named(
            "at",
            title=None,
            sort=parts["at"].unique(maintain_order=True).to_list(),
            axis={
                "labelAngle": 0,
                "labelExpr": "split(datum.label, '|')",
                "ticks": False,
                "domain": False,
            },
        ),
    )
