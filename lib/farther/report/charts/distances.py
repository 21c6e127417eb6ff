"""The first figure: outcomes of unknown objects at each distance, one panel per detector."""

from __future__ import annotations

import copy
from typing import Any

import polars as pl

from farther.report.charts import vega as vl
from farther.report.charts.results import OUTCOMES

#: Outcomes in the order of a bar, from below.
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
    charts = []
    for title in rows["panel"].unique(maintain_order=True):
        charts.append(_panel(title, rows.filter(panel=title)))
    return vl.ChartGroup(_legend(rows), tuple(charts))


def figure(rows: pl.DataFrame) -> dict[str, Any]:
    """All panels in one specification, for files: SVG, PNG and PDF."""
    specs = []
    for panel in panels(rows).charts:
        bars = rows.filter(panel=panel.title)["distance"].n_unique()
        spec = copy.deepcopy(panel.spec)
        del spec["description"]
        del spec["usermeta"]
        specs.append({**spec, "width": 62 * bars, "height": 200, "title": panel.title})
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "config": vl.FIGURES["config"],
        "columns": 3,
        "concat": specs,
    }


def _legend(rows: pl.DataFrame) -> tuple[vl.Key, ...]:
    outcomes = set(rows["outcome"].unique())
    return tuple(key for key in KEYS if key.name in outcomes)


def _panel(title: str, rows: pl.DataFrame) -> vl.Chart:
    parts = _bar_parts(rows)
    text = vl.describe_rows("{distance} ({objects} objects): {share:.0%} {outcome}", rows)
    return vl.chart(
        title,
        f"Outcomes of unknown objects with {title}. {text}.",
        parts,
        _bar_layer(rows),
        _whisker_layer(),
        _share_layer(),
        height=230,
        x=vl.nominal(
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


def _bar_parts(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows of a panel with the place of each part of a bar, of its text and of its whisker."""
    end = pl.col("share").cum_sum().over("distance")
    is_top = pl.col("outcome") == "misclassified"
    percent = pl.format("{}%", (100 * pl.col("share")).round().cast(pl.Int64))
    parts = rows.with_columns(end=end, start=end - pl.col("share")).with_columns(
        at=pl.concat_str("distance", "known", pl.col("objects").cast(pl.String), separator="|"),
        middle=(pl.col("start") + pl.col("end")) / 2,
        text=pl.when(pl.col("share") >= PRINTED).then(percent).otherwise(pl.lit("")),
        # Found grows from below and misclassified from above, so that both intervals can be read
        # off the axis.
        whisker_low=pl.when(is_top).then(1 - pl.col("high")).otherwise("low"),
        whisker_high=pl.when(is_top).then(1 - pl.col("low")).otherwise("high"),
    )
    shares = ("share", "low", "high", "start", "end", "middle", "whisker_low", "whisker_high")
    names = ("at", "distance", "run", "outcome", "objects", "text")
    return parts.select(*names, *(pl.col(name).round(4) for name in shares))


def _bar_layer(rows: pl.DataFrame) -> dict[str, Any]:
    return vl.layer(
        {**vl.STACKED, "width": {"band": 0.9}},
        y=vl.quantitative("start", title=None, scale=vl.UNIT, axis=vl.PERCENT),
        y2={"field": "end"},
        tooltip=vl.tooltip(
            "distance",
            "run",
            "outcome",
            "share:.1%",
            "low:.1% 95% interval from",
            "high:.1% to",
            "objects: unknown objects",
        ),
        **vl.legend_channels("outcome", _legend(rows)),
    )


def _whisker_layer() -> dict[str, Any]:
    """95% intervals of the shares of found and of misclassified objects."""
    has_whisker = (
        "(datum.outcome == 'found' || datum.outcome == 'misclassified') && isValid(datum.low)"
    )
    whiskers = vl.layer(
        {"type": "rule", "strokeWidth": 1.5, "color": vl.INK, "xOffset": 15},
        y=vl.quantitative("whisker_low", title=None),
        y2={"field": "whisker_high"},
    )
    return {"transform": [{"filter": has_whisker}], **whiskers}


def _share_layer() -> dict[str, Any]:
    return vl.layer(
        {"type": "text", "fontSize": 12, "fontWeight": 600, "xOffset": -2},
        y=vl.quantitative("middle", title=None),
        text=vl.nominal("text"),
        color={
            "condition": {"test": "datum.outcome == 'found'", "value": "white"},
            "value": vl.INK,
        },
    )
