"""Charts that compare methods over splits and detectors: ranks, classic against open-set metrics, near against far."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import polars as pl

from farther.metrics.catalogue import METRICS
from farther.metrics.statistics import correlation
from farther.metrics.statistics.ranking import mean_ranks
from farther.report.charts import vega as vl
from farther.report.results import Run, title_of

#: Metrics by which methods are ranked.
RANKED = ("auroc", "fpr95", "ap_u", "nose")

#: The classic metric and the open-set metric whose rankings are compared.
CLASSIC, OPEN_SET = "auroc", "ap_u"


def comparisons(runs: Sequence[Run]) -> dict[str, vl.ChartGroup | None]:
    """Comparisons of methods by variables of the template `across.html`; of detectors of boxes, where there are any."""
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


def ranks(runs: Sequence[Run]) -> vl.ChartGroup | None:
    """Rank of each method by mean AUROC on classifiers and on detectors of objects; None without runs of both kinds."""
    sides = {
        "whole images": [run for run in runs if run.whole_images],
        "objects": [run for run in runs if not run.whole_images],
    }
    of_side = {side: _mean_auroc(of) for side, of in sides.items()}
    methods = [name for name in of_side["whole images"] if name in of_side["objects"]]
    if not methods:
        return None
    legend = vl.keys([title_of(name) for name in methods], vl.SHAPES)
    rows: list[dict[str, Any]] = []
    for side, auroc in of_side.items():
        order = sorted(methods, key=lambda name: -auroc[name])
        for place, name in enumerate(order, start=1):
            rows.append(
                {
                    "side": side,
                    "rank": place,
                    "method": title_of(name),
                    "auroc": round(auroc[name], 4),
                }
            )
    text = vl.said("{method} on {side}: {rank} ({auroc:.1%})", rows)
    counted = f"classifiers: {len(sides['whole images'])}; detectors: {len(sides['objects'])}"
    drawn = vl.chart(
        "Rank by mean AUROC, 1 is best",
        f"Rank of each method by its AUROC, averaged over splits and runs ({counted}). {text}.",
        pl.DataFrame(rows),
        vl.layer({"type": "line", "strokeWidth": 2}),
        vl.layer(vl.points(70), **vl.by("method", legend, shape=vl.SHAPES)),
        height=60 + 28 * len(methods),
        x=vl.named(
            "side", title=None, sort=list(sides), scale={"padding": 0.3}, axis={"labelAngle": 0}
        ),
        y=vl.number(
            "rank",
            title="rank",
            scale={"reverse": True, "domain": [1, len(methods)]},
            axis={"tickMinStep": 1},
        ),
        tooltip=vl.tooltip("method", "side", "rank:", "auroc:.1% AUROC"),
        **vl.by("method", legend),
    )
    return vl.ChartGroup(legend, (drawn,))


def _mean_auroc(runs: Iterable[Run]) -> dict[str, float]:
    """Mean over the splits of each run, then over the runs that the method applies to, by method."""
    values = [run.values for run in runs if run.is_evaluated]
    if not values:
        return {}
    of_run = (
        pl.concat(values)
        .filter(metric="auroc")
        .group_by("run", "method", maintain_order=True)
        .agg(pl.col("value").mean())
    )
    means = of_run.group_by("method", maintain_order=True).agg(pl.col("value").mean()).drop_nulls()
    return dict(means.iter_rows())


def _complete(values: pl.DataFrame, metric: str) -> tuple[list[str], pl.DataFrame]:
    """Methods that have a value wherever any has one, and a row per run and split with a column per method.

    Rows of a detector that a method does not apply to would have other ranks, so such methods are
    left out.
    """
    table = values.filter(metric=metric).pivot("method", index=["run", "split"], values="value")
    methods = [name for name in table.columns[2:] if table[name].null_count() == 0]
    return methods, table


def _ranks(values: pl.DataFrame, name: str) -> vl.Chart | None:
    methods, table = _complete(values, name)
    if len(methods) < 2 or len(table) < 2:
        return None
    metric = METRICS[name]
    found = mean_ranks(
        table.select(methods).to_numpy(), higher_is_better=bool(metric.higher_is_better)
    )
    half, rank = found.critical_difference / 2, pl.col("rank")
    rows = (
        pl.DataFrame({"method": list(map(title_of, methods)), "rank": found.ranks})
        .sort("rank", maintain_order=True)
        .with_columns(rank.round(3), low=(rank - half).round(3), high=(rank + half).round(3))
    )
    test = f"critical difference {found.critical_difference:.2f}, Friedman's p {found.p:.2g}"
    over = f"Mean rank of each method by {metric.title} over {found.count} pairs of detector and split ({test})"
    return vl.chart(
        f"{metric.title} {metric.arrow}: {test}",
        f"{over}: {vl.said('{method} {rank:.2f}', rows)}.",
        rows,
        vl.layer(
            {"type": "rule", "strokeWidth": 5, "opacity": 0.5, "color": vl.COLOURS[0]},
            x=vl.number("low", title="mean rank, 1 is best", scale=vl.ROUND),
            x2={"field": "high"},
        ),
        vl.layer(
            vl.points(80, color=vl.COLOURS[0]),
            x=vl.number("rank"),
            tooltip=vl.tooltip("method", "rank:.2f mean rank"),
        ),
        step=24,
        y=vl.named("method", title=None, sort=rows["method"].to_list()),
    )


def _agreement(values: pl.DataFrame) -> vl.ChartGroup | None:
    """Mean rank of each method by the classic and by the open-set metric."""
    of_metric = {name: _complete(values, name) for name in (CLASSIC, OPEN_SET)}
    methods = [name for name in of_metric[CLASSIC][0] if name in of_metric[OPEN_SET][0]]
    if len(methods) < 3 or any(len(table) < 2 for _, table in of_metric.values()):
        return None
    ranks = {
        name: mean_ranks(
            table.select(methods).to_numpy(), higher_is_better=bool(METRICS[name].higher_is_better)
        ).ranks
        for name, (_, table) in of_metric.items()
    }
    rows = [
        {"method": title_of(method), "classic": round(first, 3), "open_set": round(second, 3)}
        for method, first, second in zip(
            methods, *(ranks[name].tolist() for name in (CLASSIC, OPEN_SET)), strict=True
        )
    ]
    matrix = correlation.matrix(rows, ["classic", "open_set"], "spearman")
    agreement = matrix["classic"]["open_set"]
    legend = vl.keys([row["method"] for row in rows], vl.SHAPES)
    titles = [METRICS[name].title for name in (CLASSIC, OPEN_SET)]
    found = "not defined" if agreement is None else f"{agreement:+.2f}"
    title = f"Spearman's correlation of the two rankings: {found}"
    text = vl.said("{method} {classic:.2f} and {open_set:.2f}", rows)
    axis = {"scale": {"domain": [1, len(methods)], "padding": 12, "reverse": True}}
    drawn = vl.chart(
        title,
        f"Mean rank by {titles[0]} and by {titles[1]}. {title}. {text}.",
        pl.DataFrame(rows),
        vl.layer(vl.points(110, 0.9)),
        height=280,
        x=vl.number("classic", title=f"mean rank by {titles[0]}", **axis),
        y=vl.number("open_set", title=f"mean rank by {titles[1]}", **axis),
        tooltip=vl.tooltip("method", f"classic: {titles[0]}", f"open_set: {titles[1]}"),
        **vl.by("method", legend, shape=vl.SHAPES),
    )
    return vl.ChartGroup(legend, (drawn,))


def _gaps(values: pl.DataFrame) -> vl.ChartGroup | None:
    """Mean AUROC of each method on near and on far splits, over the detectors that have both."""
    means = (
        values.filter(metric=CLASSIC)
        .drop_nulls("value")
        .group_by("run", "method", "distance")
        .agg(pl.mean("value"))
    )
    both = means.pivot("distance", index=["run", "method"], values="value")
    if not {"near", "far"} <= set(both.columns):
        return None
    pairs = (
        both.drop_nulls(["near", "far"])
        .group_by("method")
        .agg(pl.mean("near"), pl.mean("far"), runs=pl.len())
    )
    if pairs.is_empty():
        return None
    rows = pairs.with_columns(gap=pl.col("far") - pl.col("near")).sort("gap", "method")
    rows = rows.with_columns(pl.col("method").map_elements(title_of, return_dtype=pl.String))
    legend = (vl.Key("near", vl.COLOURS[0], "●"), vl.Key("far", vl.COLOURS[1], "■"))
    ends = rows.unpivot(
        ["near", "far"],
        index=["method", "runs", "gap"],
        variable_name="distance",
        value_name="value",
    )
    text = vl.said("{method} {points:+.1f} points", rows.with_columns(points=100 * pl.col("gap")))
    drawn = vl.chart(
        "AUROC on near and far splits",
        f"Far minus near: {text}.",
        ends.sort("method", "distance"),
        vl.layer(
            {"type": "line", "strokeWidth": 2, "color": "#9AA5B1"},
            x=vl.number("value"),
            detail=vl.named("method"),
        ),
        vl.layer(
            vl.points(80),
            x=vl.number("value", title="mean AUROC", axis=vl.PERCENT, scale=vl.ROUND),
            tooltip=vl.tooltip(
                "method", "distance", "value:.1%", "gap:+.1% far − near", "runs: detectors"
            ),
            **vl.by("distance", legend, shape=vl.SHAPES),
        ),
        step=24,
        y=vl.named("method", title=None, sort=rows["method"].to_list()),
    )
    return vl.ChartGroup(legend, (drawn,))
