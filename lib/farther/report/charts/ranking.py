"""Charts that compare methods over splits and detectors.

They show mean ranks, the classic metric against the open-set metric, and near against far splits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from farther.metrics.catalogue import METRICS
from farther.metrics.statistics import correlation
from farther.metrics.statistics.ranking import MeanRanks, mean_ranks
from farther.report.charts import vega as vl
from farther.report.results import Run, title_of

#: Metrics by which methods are ranked.
RANKED = ("auroc", "fpr95", "ap_u", "nose")

#: The classic metric and the open-set metric whose rankings are compared.
CLASSIC = "auroc"
OPEN_SET = "ap_u"

#: An axis of mean ranks.
RANKS: dict[str, Any] = {"tickCount": 5, "labelSeparation": 6}

#: Kinds of runs whose rankings are compared.
WHOLE_IMAGES = "whole images"
OBJECTS = "objects"


def comparisons(runs: Sequence[Run]) -> dict[str, vl.ChartGroup | None]:
    """Comparisons of methods by variables of the template `methods.html`.

    They are over object detectors where there are any, else over classifiers.
    """
    compared = [run for run in runs if not run.whole_images] or list(runs)
    if not compared:
        return {"mean_ranks": None, "agreement": None, "gaps": None}
    values = pl.concat([run.values for run in compared])
    return {
        "mean_ranks": _mean_ranks(values),
        "agreement": _agreement(values),
        "gaps": _gaps(values),
    }


def ranks(runs: Sequence[Run]) -> vl.ChartGroup | None:
    """Rank of each method by mean AUROC on classifiers and on object detectors.

    None without runs of both kinds.
    """
    runs_by_kind = {
        WHOLE_IMAGES: [run for run in runs if run.whole_images],
        OBJECTS: [run for run in runs if not run.whole_images],
    }
    auroc_by_kind = {kind: _mean_auroc(runs) for kind, runs in runs_by_kind.items()}
    methods = [name for name in auroc_by_kind[WHOLE_IMAGES] if name in auroc_by_kind[OBJECTS]]
    if not methods:
        return None
    legend = vl.legend_keys([title_of(name) for name in methods], vl.SHAPES)
    rows: list[dict[str, Any]] = []
    for kind, auroc in auroc_by_kind.items():
        best_first = sorted(methods, key=lambda name: (-auroc[name], name))
        for rank, name in enumerate(best_first, start=1):
            rows.append(
                {
                    "side": kind,
                    "rank": rank,
                    "method": title_of(name),
                    "auroc": round(auroc[name], 4),
                }
            )
    text = vl.describe_rows("{method} on {side}: {rank} ({auroc:.1%})", rows)
    counts = (
        f"classifiers: {len(runs_by_kind[WHOLE_IMAGES])}; detectors: {len(runs_by_kind[OBJECTS])}"
    )
    chart = vl.chart(
        "Rank by mean AUROC, 1 is best",
        f"Rank of each method by its AUROC, averaged over splits and runs ({counts}). {text}.",
        pl.DataFrame(rows),
        vl.layer({"type": "line", "strokeWidth": 2}),
        vl.layer(vl.point_mark(70), **vl.legend_channels("method", legend, shape=vl.SHAPES)),
        height=60 + 28 * len(methods),
        x=vl.nominal(
            "side",
            title=None,
            sort=list(runs_by_kind),
            scale={"padding": 0.3},
            axis={"labelAngle": 0},
        ),
        y=vl.quantitative(
            "rank",
            title="rank",
            scale={"reverse": True, "domain": [1, len(methods)]},
            axis={"tickMinStep": 1},
        ),
        tooltip=vl.tooltip("method", "side", "rank:", "auroc:.1% AUROC"),
        **vl.legend_channels("method", legend),
    )
    return vl.ChartGroup(legend, (chart,))


def _mean_auroc(runs: Iterable[Run]) -> dict[str, float]:
    """Method → its mean over the splits of each run, then over runs.

    Methods that lack a value in a run or split are left out.
    """
    means_by_method: dict[str, list[float]] = {}
    evaluated = [run for run in runs if run.is_evaluated]
    for run in evaluated:
        of_metric = run.values.filter(metric=CLASSIC)
        complete = of_metric.filter(pl.col("value").is_not_null().all().over("method"))
        means = complete.group_by("method", maintain_order=True).agg(pl.col("value").mean())
        for method, mean in means.iter_rows():
            means_by_method.setdefault(method, []).append(mean)
    return {
        method: sum(means) / len(means)
        for method, means in means_by_method.items()
        if len(means) == len(evaluated)
    }


@dataclass(frozen=True)
class CompleteTable:
    """A metric of the methods that have a value wherever any method has one.

    Rows of a detector that a method does not apply to would have other ranks, so such methods are
    left out.

    Args:
        metric: Name of the metric.
        methods: Names of the methods.
        values: One row per run and split, one column per method.
    """

    metric: str
    methods: list[str]
    values: pl.DataFrame

    @classmethod
    def of(cls, values: pl.DataFrame, metric: str) -> CompleteTable:
        """The table of a metric from rows like those of `Run.values`."""
        table = values.filter(metric=metric).pivot("method", index=["run", "split"], values="value")
        all_methods = table.columns[2:]
        methods = [name for name in all_methods if table[name].null_count() == 0]
        return cls(metric, methods, table)

    def __len__(self) -> int:
        return len(self.values)

    def mean_ranks(self, methods: Sequence[str]) -> MeanRanks:
        """Mean ranks of some of the methods over the rows."""
        return mean_ranks(
            self.values.select(methods).to_numpy(),
            higher_is_better=bool(METRICS[self.metric].higher_is_better),
        )


def _mean_ranks(values: pl.DataFrame) -> vl.ChartGroup | None:
    charts = []
    for metric in RANKED:
        chart = _mean_rank_chart(values, metric)
        if chart is not None:
            charts.append(chart)
    if not charts:
        return None
    return vl.ChartGroup((), tuple(charts))


def _mean_rank_chart(values: pl.DataFrame, name: str) -> vl.Chart | None:
    """Mean rank of each method by a metric; None for fewer than two methods or rows."""
    table = CompleteTable.of(values, name)
    if len(table.methods) < 2 or len(table) < 2:
        return None
    metric = METRICS[name]
    ranking = table.mean_ranks(table.methods)
    rank = pl.col("rank")
    half = ranking.critical_difference / 2
    titles = [title_of(method) for method in table.methods]
    rows = (
        pl.DataFrame({"method": titles, "rank": ranking.ranks})
        .sort("rank", "method")
        .with_columns(rank.round(3), low=(rank - half).round(3), high=(rank + half).round(3))
    )
    test = f"critical difference {ranking.critical_difference:.2f}, Friedman's p {ranking.p:.2g}"
    text = vl.describe_rows("{method} {rank:.2f}", rows)
    return vl.chart(
        f"{metric.title} {metric.arrow}: {test}",
        f"Mean rank of each method by {metric.title} over {ranking.count} pairs of run and "
        f"split ({test}): {text}.",
        rows,
        vl.layer(
            {"type": "rule", "strokeWidth": 5, "opacity": 0.5, "color": vl.COLOURS[0]},
            x=vl.quantitative("low", title="mean rank, 1 is best", axis=RANKS, scale=vl.ROUND),
            x2={"field": "high"},
        ),
        vl.layer(
            vl.point_mark(80, color=vl.COLOURS[0]),
            x=vl.quantitative("rank"),
            tooltip=vl.tooltip("method", "rank:.2f mean rank"),
        ),
        step=24,
        y=vl.nominal("method", title=None, sort=rows["method"].to_list()),
    )


def _agreement(values: pl.DataFrame) -> vl.ChartGroup | None:
    """Mean rank of each method by the classic and by the open-set metric.

    None for fewer than three methods or two rows.
    """
    classic = CompleteTable.of(values, CLASSIC)
    open_set = CompleteTable.of(values, OPEN_SET)
    methods = [name for name in classic.methods if name in open_set.methods]
    if len(methods) < 3 or len(classic) < 2 or len(open_set) < 2:
        return None
    classic_ranks = classic.mean_ranks(methods).ranks.tolist()
    open_set_ranks = open_set.mean_ranks(methods).ranks.tolist()
    rows = []
    for method, by_classic, by_open_set in zip(methods, classic_ranks, open_set_ranks, strict=True):
        rows.append(
            {
                "method": title_of(method),
                "classic": round(by_classic, 3),
                "open_set": round(by_open_set, 3),
            }
        )
    matrix = correlation.matrix(rows, ["classic", "open_set"], "spearman")
    agreement = matrix["classic"]["open_set"]
    coefficient = "not defined" if agreement is None else f"{agreement:+.2f}"
    title = f"Spearman's correlation of the two rankings: {coefficient}"
    text = vl.describe_rows("{method} {classic:.2f} and {open_set:.2f}", rows)
    classic_title = METRICS[CLASSIC].title
    open_set_title = METRICS[OPEN_SET].title
    legend = vl.legend_keys([row["method"] for row in rows], vl.SHAPES)
    scale = {"domain": [1, len(methods)], "padding": 12, "reverse": True}
    axis = {"axis": RANKS, "scale": scale}
    chart = vl.chart(
        title,
        f"Mean rank by {classic_title} and by {open_set_title}. {title}. {text}.",
        pl.DataFrame(rows),
        vl.layer(vl.point_mark(110, 0.9)),
        height=280,
        x=vl.quantitative("classic", title=f"mean rank by {classic_title}", **axis),
        y=vl.quantitative("open_set", title=f"mean rank by {open_set_title}", **axis),
        tooltip=vl.tooltip("method", f"classic: {classic_title}", f"open_set: {open_set_title}"),
        **vl.legend_channels("method", legend, shape=vl.SHAPES),
    )
    return vl.ChartGroup(legend, (chart,))


def _gaps(values: pl.DataFrame) -> vl.ChartGroup | None:
    """Mean AUROC of each method on near and on far splits, over the runs that have both.

    Methods that do not apply to all of these runs are left out.
    """
    means = (
        values.filter(metric=CLASSIC)
        .drop_nulls("value")
        .group_by("run", "method", "distance")
        .agg(pl.mean("value"))
    )
    by_distance = means.pivot("distance", index=["run", "method"], values="value")
    if "near" not in by_distance.columns or "far" not in by_distance.columns:
        return None
    with_both = by_distance.drop_nulls(["near", "far"])
    gaps = (
        with_both.group_by("method")
        .agg(pl.mean("near"), pl.mean("far"), runs=pl.len())
        .with_columns(gap=pl.col("far") - pl.col("near"))
        .sort("gap", "method")
    )
    gaps = gaps.filter(pl.col("runs") == with_both["run"].n_unique())
    if gaps.is_empty():
        return None
    rows = gaps.with_columns(pl.col("method").map_elements(title_of, return_dtype=pl.String))
    legend = (vl.Key("near", vl.COLOURS[0], "●"), vl.Key("far", vl.COLOURS[1], "■"))
    ends = rows.unpivot(
        ["near", "far"],
        index=["method", "runs", "gap"],
        variable_name="distance",
        value_name="value",
    )
    text = vl.describe_rows(
        "{method} {points:+.1f} points", rows.with_columns(points=100 * pl.col("gap"))
    )
    chart = vl.chart(
        "AUROC on near and far splits",
        f"Far minus near: {text}.",
        ends.sort("method", "distance"),
        vl.layer(
            {"type": "line", "strokeWidth": 2, "color": "#9AA5B1"},
            x=vl.quantitative("value"),
            detail=vl.nominal("method"),
        ),
        vl.layer(
            vl.point_mark(80),
            x=vl.quantitative("value", title="mean AUROC", axis=vl.PERCENT, scale=vl.ROUND),
            tooltip=vl.tooltip("method", "distance", "value:.1%", "gap:+.1% far − near", "runs:"),
            **vl.legend_channels("distance", legend, shape=vl.SHAPES),
        ),
        step=24,
        y=vl.nominal("method", title=None, sort=rows["method"].to_list()),
    )
    return vl.ChartGroup(legend, (chart,))
