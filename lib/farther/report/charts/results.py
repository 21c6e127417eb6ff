"""Charts of results: outcomes of unknown objects, metrics by family, method and detector, and how metrics agree."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from farther.metrics.catalogue import Metric
from farther.metrics.statistics import correlation
from farther.report.charts import vega as vl
from farther.report.results import CHARTED, Run, title_of

FAMILIES = ("output", "feature", "mixed", "latent")

#: Outcomes of an unknown object: key in an evaluation → legend.
OUTCOMES = {
    "tp_u": vl.Key("found", "#0072B2", "■"),
    "fn_misclassified": vl.Key("misclassified", "#D55E00", "■"),
    "fn_missed": vl.Key("missed", "#BDBDBD", "■"),
}
OUTCOME_KEYS = tuple(OUTCOMES.values())


def outcomes(run: Run, method: str) -> vl.Chart | None:
    """Outcomes of the unknown objects of each split that has some, as stacked bars; None where none has."""
    rows = _outcomes([(run, method)]).with_columns(row="split")
    if rows.is_empty():
        return None
    title = f"{run.full_title}, {run.label(method)}"
    return _outcome_chart(
        title, "Outcomes of unknown objects", rows, [split.title for split in run.splits]
    )


def outcomes_by_split(shown: Sequence[tuple[Run, str]]) -> vl.ChartGroup:
    """Outcomes of unknown objects for several detectors, one chart per split."""
    rows, order = _outcomes(shown).with_columns(row="run"), [run.full_title for run, _ in shown]
    charts = [
        _outcome_chart(title, f"Outcomes of unknown objects in {title}", of_split, order)
        for title in (split.title for split in shown[0][0].splits)
        if len(of_split := rows.filter(split=title))
    ]
    return vl.ChartGroup(OUTCOME_KEYS, tuple(charts))


def _outcomes(shown: Sequence[tuple[Run, str]]) -> pl.DataFrame:
    """Unknown objects by run, split and outcome: run, split, outcome, order, objects, share."""
    rows = []
    for run, method in shown:
        for split in run.splits:
            counts = run.details(split.name, method).of_group("open_set")
            for order, (outcome, key) in enumerate(OUTCOMES.items()):
                place = {
                    "run": run.full_title,
                    "split": split.title,
                    "outcome": key.name,
                    "order": order,
                }
                rows.append({**place, "objects": counts.get(outcome, 0)})
    total = pl.col("objects").sum().over("run", "split")
    return (
        pl.DataFrame(rows)
        .filter(total > 0)
        .with_columns(share=(pl.col("objects") / total).round(4))
    )


def _outcome_chart(title: str, shows: str, rows: pl.DataFrame, order: Sequence[str]) -> vl.Chart:
    return vl.chart(
        title,
        f"{shows}. {vl.said('{row}: {share:.0%} {outcome}', rows)}.",
        rows.drop("run", "split"),
        vl.layer(vl.STACKED),
        step=34,
        x=vl.number("share", title="share of unknown objects", axis=vl.PERCENT, scale=vl.UNIT),
        y=vl.named("row", title=None, sort=list(order)),
        order=vl.number("order"),
        tooltip=vl.tooltip("row of", "outcome", "share:.1%", "objects:"),
        **vl.by("outcome", OUTCOME_KEYS),
    )


def families(values: pl.DataFrame, metrics: Sequence[Metric]) -> vl.ChartGroup:
    """Metrics by split, averaged over the methods of a family and over detectors (FMIYC, Figures 4 and 5)."""
    means = (
        values.drop_nulls("value")
        .group_by("metric", "family", split="split_title", maintain_order=True)
        .agg(pl.col("value").mean(), methods=pl.len())
    )
    legend = tuple(
        vl.Key(family, colour, "■")
        for family, colour in zip(FAMILIES, vl.COLOURS, strict=False)
        if family in means["family"]
    )
    splits = values["split_title"].unique(maintain_order=True).to_list()
    charts = (
        _family_chart(metric, of_metric.drop("metric"), splits, legend)
        for metric in metrics
        if len(of_metric := means.filter(metric=metric.name))
    )
    return vl.ChartGroup(legend, tuple(charts))


def _family_chart(
    metric: Metric, rows: pl.DataFrame, splits: list[str], legend: Sequence[vl.Key]
) -> vl.Chart:
    text = vl.said("{split}, {family}: {value:.1%}", rows)
    return vl.chart(
        f"{metric.title} {metric.arrow}",
        f"{metric.title} by split, averaged over the methods of each family. {text}.",
        rows,
        vl.layer("bar"),
        height=190,
        x=vl.named("split", title=None, sort=splits, axis={"labelAngle": -35}),
        xOffset=vl.named("family", sort=[key.name for key in legend]),
        y=vl.number("value", title=None, axis=vl.PERCENT),
        tooltip=vl.tooltip(
            "split", "family", f"value:.1% {metric.title}", "methods: values averaged"
        ),
        **vl.by("family", legend),
    )


def methods(run: Run) -> vl.ChartGroup:
    """Each metric of a run: one row per method, one mark per split."""
    return _dots(run.values.with_columns(row="label"), f"of {run.full_title} by method and split")


def detectors(runs: Sequence[Run], method: str) -> vl.ChartGroup:
    """Each metric of a method, by its name in params.yaml: one row per detector, one mark per split."""
    values = pl.concat([run.titled_values for run in runs]).filter(method=method)
    return _dots(
        values.with_columns(row="detector"), f"of {title_of(method)} by detector and split"
    )


def _dots(values: pl.DataFrame, shows: str) -> vl.ChartGroup:
    legend = vl.keys(values["split_title"].unique(maintain_order=True), vl.SHAPES)
    order = values["row"].unique(maintain_order=True).to_list()
    rows = values.select("metric", "row", pl.col("value").round(4), split="split_title").drop_nulls(
        "value"
    )
    charts = (
        vl.chart(
            f"{metric.title} {metric.arrow}",
            f"{metric.title} {shows}; the tables hold the same values.",
            of_metric.drop("metric"),
            vl.layer(vl.points(70, 0.9)),
            step=20,
            x=vl.number("value", title=None, axis=vl.PERCENT, scale={**vl.ROUND, "padding": 8}),
            y=vl.named("row", title=None, sort=order, axis={"grid": True, "ticks": False}),
            tooltip=vl.tooltip("row of", "split", f"value:.1% {metric.title}"),
            **vl.by("split", legend, shape=vl.SHAPES),
        )
        for metric in CHARTED
        if len(of_metric := rows.filter(metric=metric.name))
    )
    return vl.ChartGroup(legend, tuple(charts))


def correlations(values: pl.DataFrame) -> vl.Chart | None:
    """Correlations among metrics over all methods, detectors and splits (FMIYC, Figure 12); None for one row."""
    rows = values.pivot("metric", index=["run", "split", "method"], values="value")
    if len(rows) < 2:
        return None
    titles = {metric.name: metric.title for metric in CHARTED if rows[metric.name].count()}
    found = correlation.matrix(rows.to_dicts(), list(titles))
    order = list(titles.values())
    cells = pl.DataFrame(
        [
            (titles[a], titles[b], value)
            for a, others in found.items()
            for b, value in others.items()
        ],
        schema={"first": pl.String, "second": pl.String, "value": pl.Float64},
        orient="row",
    ).with_columns(pl.col("value").round(4))
    pairs = [
        row
        for row in cells.drop_nulls().to_dicts()
        if order.index(row["first"]) < order.index(row["second"])
    ]
    return vl.heat_map(
        "Correlations among metrics",
        f"Pearson's, over {len(rows)} rows of the tables: {vl.said('{first} and {second} {value:+.2f}', pairs)}.",
        cells,
        "value",
        vl.number("value", format="+.2f"),
        # Blue, white and orange are told apart with any colour vision, and each cell holds its
        # number.
        scale={"domain": [-1, 0, 1], "range": ["#E69F00", "#F7F7F7", "#4C9BD0"]},
        step=44,
        x=vl.named("second", title=None, sort=order, axis={"labelAngle": 0, "orient": "top"}),
        y=vl.named("first", title=None, sort=order),
        tooltip=vl.tooltip("first", "second", "value:+.2f"),
    )


def confusion_of_known(run: Run, shown: int) -> vl.Chart | None:
    """Known class × known class that detections assign to it; None where there are no such detections.

    The left part of Dhamija et al., 2020, Figure 4; see `confusion`, which is the right one.
    """
    return _confusion(run, shown, "Known objects detected as known classes", of_known=True)


def confusion(run: Run, shown: int) -> vl.Chart | None:
    """Unknown category × known class that detections assign to it; None where there are no such detections.

    Detections count that reach, for their class, the confidence at which `diagnosis_recall` of the
    known objects is found (Dhamija et al., 2020, Figure 4).
    """
    return _confusion(run, shown, "Unknown objects detected as known classes", of_known=False)


def _confusion(run: Run, shown: int, title: str, *, of_known: bool) -> vl.Chart | None:
    """The confusion of the known, or of the unknown categories; the `shown` most frequent ones."""
    if run.evaluation is None:
        return None
    known = list(run.evaluation.closed_set.per_class)
    counts = []
    for category, by_class in run.evaluation.wilderness.confusion.items():
        if (category in known) != of_known:
            continue
        for taken, count in by_class.items():
            counts.append({"category": category, "class": taken, "detections": count})
    cells = pl.DataFrame(
        counts, schema={"category": pl.String, "class": pl.String, "detections": pl.Int64}
    )
    if cells.is_empty():
        return None
    total = cells.group_by("category").agg(pl.col("detections").sum())
    ranked = total.sort("detections", "category", descending=[True, False])["category"].head(shown)
    cells = ranked.to_frame().join(cells, on="category", maintain_order="left_right")
    if len(ranked) < len(total):
        title += f" ({len(ranked)} of {len(total)} categories)"
    return vl.heat_map(
        title,
        f"Detections by category: {vl.said('{category} as {class} {detections}', cells)}.",
        cells,
        "detections",
        vl.number("detections"),
        step=22,
        x=vl.named("class", title="detected as", axis={"labelAngle": -45, "orient": "top"}),
        y=vl.named("category", title=None, sort=ranked.to_list()),
        tooltip=vl.tooltip("category", "class", "detections:"),
    )
