"""Methods compared over splits and detectors: mean ranks, classic against open-set metrics, near against far."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from farther.metrics import correlation
from farther.metrics.catalogue import METRICS
from farther.metrics.ranking import mean_ranks
from farther.report.charts import vega as vl
from farther.report.results import Run, title_of

#: Metrics by which methods are ranked.
RANKED = ("auroc", "fpr95", "ap_u", "nose")

#: The classic metric and the open-set metric whose rankings are compared.
CLASSIC, OPEN_SET = "auroc", "ap_u"


def content(runs: Sequence[Run]) -> dict[str, Any]:
    """Variables of the template `across.html` on comparisons of methods; of detectors of boxes, where there are any."""
    boxes = [run for run in runs if not run.whole_images] or list(runs)
    values = pl.concat([run.values for run in boxes]) if boxes else None
    if values is None:
        return {"mean_ranks": None, "agreement": None, "gaps": None}
    charts = tuple(chart for name in RANKED if (chart := _ranks(values, name)))
    return {
        "mean_ranks": vl.ChartGroup((), charts) if charts else None,
        "agreement": _agreement(values),
        "gaps": _gaps(values),
    }


def _complete(values: pl.DataFrame, metric: str) -> tuple[list[str], pl.DataFrame]:
    """Methods that have a value wherever any has one, and a row per run and split with a column per method.

    Rows of a detector that a method does not apply to would have other ranks, so such methods are left out.
    """
    table = values.filter(metric=metric).pivot("method", index=["run", "split"], values="value")
    methods = [name for name in table.columns[2:] if table[name].null_count() == 0]
    return methods, table


def _ranks(values: pl.DataFrame, name: str) -> vl.Chart | None:
    methods, table = _complete(values, name)
    if len(methods) < 2 or len(table) < 2:
        return None
    metric = METRICS[name]
    found = mean_ranks(table.select(methods).to_numpy(), higher_is_better=bool(metric.higher_is_better))
    half = found.critical_difference / 2
    rows = [
        {
            "method": title_of(method),
            "rank": round(rank, 3),
            "low": round(rank - half, 3),
            "high": round(rank + half, 3),
        }
        for method, rank in sorted(zip(methods, found.ranks.tolist(), strict=True), key=lambda pair: pair[1])
    ]
    shared = {"y": vl.named("method", title=None, sort=[row["method"] for row in rows])}
    tooltip = [vl.named("method"), vl.number("rank", title="mean rank", format=".2f")]
    body = {
        "height": {"step": 24},
        "layer": [
            {
                "mark": {"type": "rule", "strokeWidth": 5, "opacity": 0.35, "color": vl.COLOURS[0]},
                "encoding": {
                    **shared,
                    "x": vl.number("low", title="mean rank, 1 is best", scale={"zero": False, "nice": True}),
                    "x2": {"field": "high"},
                },
            },
            {
                "mark": {"type": "point", "filled": True, "size": 80, "opacity": 1, "color": vl.COLOURS[0]},
                "encoding": {**shared, "x": vl.number("rank"), "tooltip": tooltip},
            },
        ],
    }
    said = "; ".join(f"{row['method']} {row['rank']:.2f}" for row in rows)
    test = f"critical difference {found.critical_difference:.2f}, Friedman's p {found.p:.2g}"
    words = (
        f"Mean rank of each method by {metric.title} over {found.count} pairs of detector and split ({test}): {said}."
    )
    return vl.chart(f"{metric.title} {metric.arrow}: {test}", words, pl.DataFrame(rows), body)


def _agreement(values: pl.DataFrame) -> vl.ChartGroup | None:
    """Mean rank of each method by the classic and by the open-set metric."""
    of_metric = {name: _complete(values, name) for name in (CLASSIC, OPEN_SET)}
    methods = [name for name in of_metric[CLASSIC][0] if name in of_metric[OPEN_SET][0]]
    if len(methods) < 3 or any(len(table) < 2 for _, table in of_metric.values()):
        return None
    ranks = {
        name: mean_ranks(table.select(methods).to_numpy(), higher_is_better=bool(METRICS[name].higher_is_better)).ranks
        for name, (_, table) in of_metric.items()
    }
    rows = [
        {"method": title_of(method), "classic": round(first, 3), "open_set": round(second, 3)}
        for method, first, second in zip(methods, *(ranks[name].tolist() for name in (CLASSIC, OPEN_SET)), strict=True)
    ]
    matrix = correlation.matrix(rows, ["classic", "open_set"], "spearman")
    agreement = matrix["classic"]["open_set"]
    legend = vl.keys([row["method"] for row in rows], vl.SHAPES)
    titles = [METRICS[name].title for name in (CLASSIC, OPEN_SET)]
    axis = {"scale": {"domain": [1, len(methods)], "padding": 12, "reverse": True}}
    body = {
        "height": 280,
        "mark": {"type": "point", "filled": True, "size": 110, "opacity": 0.9},
        "encoding": {
            "x": vl.number("classic", title=f"mean rank by {titles[0]}", **axis),
            "y": vl.number("open_set", title=f"mean rank by {titles[1]}", **axis),
            "color": vl.named("method", scale=vl.colours(legend), legend=None),
            "shape": vl.named("method", scale=vl.marks(legend, vl.SHAPES), legend=None),
            "tooltip": [
                vl.named("method"),
                vl.number("classic", title=titles[0]),
                vl.number("open_set", title=titles[1]),
            ],
        },
    }
    found = "not defined" if agreement is None else f"{agreement:+.2f}"
    title = f"Spearman's correlation of the two rankings: {found}"
    said = "; ".join(f"{row['method']} {row['classic']:.2f} and {row['open_set']:.2f}" for row in rows)
    chart = vl.chart(title, f"Mean rank by {titles[0]} and by {titles[1]}. {title}. {said}.", pl.DataFrame(rows), body)
    return vl.ChartGroup(legend, (chart,))


def _gaps(values: pl.DataFrame) -> vl.ChartGroup | None:
    """Mean AUROC of each method on near and on far splits, over the detectors that have both."""
    means = (
        values.filter(metric=CLASSIC).drop_nulls("value").group_by("run", "method", "distance").agg(pl.mean("value"))
    )
    both = means.pivot("distance", index=["run", "method"], values="value")
    if not {"near", "far"} <= set(both.columns):
        return None
    pairs = both.drop_nulls(["near", "far"]).group_by("method").agg(pl.mean("near"), pl.mean("far"), runs=pl.len())
    if pairs.is_empty():
        return None
    rows = pairs.with_columns(gap=pl.col("far") - pl.col("near")).sort("gap", "method")
    rows = rows.with_columns(pl.col("method").map_elements(title_of, return_dtype=pl.String))
    legend = (vl.Key("near", vl.COLOURS[0], "●"), vl.Key("far", vl.COLOURS[1], "■"))
    order = rows["method"].to_list()
    ends = rows.unpivot(["near", "far"], index=["method", "runs", "gap"], variable_name="distance", value_name="value")
    shared = {"y": vl.named("method", title=None, sort=order)}
    body = {
        "height": {"step": 24},
        "encoding": shared,
        "layer": [
            {
                "mark": {"type": "line", "strokeWidth": 2, "color": "#9AA5B1"},
                "encoding": {"x": vl.number("value"), "detail": vl.named("method")},
            },
            {
                "mark": {"type": "point", "filled": True, "size": 80, "opacity": 1},
                "encoding": {
                    "x": vl.number("value", title="mean AUROC", axis=vl.PERCENT, scale={"zero": False, "nice": True}),
                    "color": vl.named("distance", scale=vl.colours(legend), legend=None),
                    "shape": vl.named("distance", scale=vl.marks(legend, vl.SHAPES), legend=None),
                    "tooltip": [
                        vl.named("method"),
                        vl.named("distance"),
                        vl.number("value", format=".1%"),
                        vl.number("gap", format="+.1%", title="far − near"),
                        vl.number("runs", title="detectors"),
                    ],
                },
            },
        ],
    }
    said = "; ".join(f"{row['method']} {100 * row['gap']:+.1f} points" for row in rows.iter_rows(named=True))
    chart = vl.chart("AUROC on near and far splits", f"Far minus near: {said}.", ends.sort("method", "distance"), body)
    return vl.ChartGroup(legend, (chart,))
