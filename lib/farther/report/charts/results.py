"""Charts of results: outcomes of unknown objects, metrics, their correlations, and confusions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from farther.metrics.catalogue import METRICS, Metric
from farther.metrics.statistics import correlation
from farther.report.charts import outcomes as bars_of_outcomes
from farther.report.charts import vega as vl
from farther.report.links import GalleryLinks, View, of_part
from farther.report.outcomes import OUTCOMES, OutcomeShares, coverage_in_split
from farther.report.results import CHARTED, Run

#: Methods of FMIYC by family (Section 5.2); LaRD is the best of several, `LARD`.
FAMILIES: dict[str, tuple[str, ...]] = {
    "output": ("msp", "energy", "gen"),
    "feature": ("knn", "ddu", "mahalanobis"),
    "mixed": ("vim", "ash", "dice", "react", "dice_react"),
    "latent": (),
}
LARD = ("lard_knn", "lard_mahalanobis", "lard_gmm")

#: Fewest values of a metric that its correlation with another one is computed from.
FEWEST_CORRELATED = 10

#: Height in pixels of a bar of outcomes.
BAR_HEIGHT = 34


def outcomes(run: Run, method: str, links: GalleryLinks | None = None) -> vl.ChartGroup:
    """Outcomes of the unknown objects of each split that has some, as one chart.

    No chart where no split has any.

    Args:
        run: The run.
        method: The method that flags detections as unknown.
        links: The page's links to the run's images.
    """
    bars = []
    for split in run.splits:
        shares = _outcome_shares(run, split.name, method)
        if shares is not None:
            view = View(split.name, method)
            bars.append(_Bar(split.title, run, shares, links, view))
    subject = f"{run.full_title}, {run.label(method)}"
    return _outcome_charts({subject: bars})


def outcomes_by_split(
    runs: Sequence[tuple[Run, str]], links: Mapping[str, GalleryLinks] | None = None
) -> vl.ChartGroup:
    """Outcomes of unknown objects for several detectors, one chart per split.

    Args:
        runs: The runs, each with its method.
        links: Run → the page's links to its images.
    """
    first_run, _ = runs[0]
    bars_by_split: dict[str, list[_Bar]] = {}
    for split in first_run.splits:
        bars_by_split[split.title] = []
        for run, method in runs:
            shares = _outcome_shares(run, split.name, method)
            if shares is not None:
                view = View(split.name, method)
                bar = _Bar(run.full_title, run, shares, (links or {}).get(run.name), view)
                bars_by_split[split.title].append(bar)
    return _outcome_charts(bars_by_split)


@dataclass(frozen=True)
class _Bar:
    """A bar of outcomes and its label.

    Args:
        label: Its label.
        run: The run.
        shares: The outcomes.
        links: Links to the run's images.
        view: The split and the method.
    """

    label: str
    run: Run
    shares: OutcomeShares
    links: GalleryLinks | None
    view: View

    def parts(self) -> list[dict[str, Any]]:
        """`OutcomeShares.parts` with the name of the bar, and the address of their images."""
        rows = []
        for part in self.shares.parts():
            row = {"name": self.label, **part}
            if self.links is not None:
                count = round(part["share"] * part["objects"])
                view = replace(self.view, count=count)
                row["href"] = of_part(self.links, view, part["part"], self.run)
            rows.append(row)
        return rows


def _outcome_shares(run: Run, split: str, method: str) -> OutcomeShares | None:
    """Outcomes of the unknown objects of a split; None where it has none."""
    counts = {key: int(run.value(split, method, "open_set", key) or 0) for key in OUTCOMES}
    objects = sum(counts.values())
    if not objects:
        return None
    shares = {}
    for key, outcome in OUTCOMES.items():
        shares[outcome] = counts[key] / objects
    intervals = {}
    for outcome, name in (("found", "r_u"), ("misclassified", "nose")):
        result = run.result(split, method, METRICS[name])
        intervals[outcome] = None if result is None else result.interval
    return OutcomeShares(objects, shares, intervals, coverage_in_split(run, split))


def _outcome_charts(bars_by_title: Mapping[str, Sequence[_Bar]]) -> vl.ChartGroup:
    """A chart per title, without those that have no bar, and one legend for all."""
    drawn = {title: bars for title, bars in bars_by_title.items() if bars}
    charts = []
    tables = []
    for title, bars in drawn.items():
        rows: list[dict[str, Any]] = []
        for number, bar in enumerate(bars):
            rows += [{"bar": number, **part} for part in bar.parts()]
        table = pl.DataFrame(rows, infer_schema_length=None)
        tables.append(table.select("part", "share", pl.col("alarms").cast(pl.Float64)))
        labels = [[bar.label] for bar in bars]
        text = "; ".join(f"{bar.label}: {bar.shares.in_words()}" for bar in bars)
        charts.append(
            bars_of_outcomes.bars(
                title,
                f"Outcomes of unknown objects, {title}. {text}.",
                table,
                labels,
                bars_of_outcomes.LYING,
                BAR_HEIGHT,
            )
        )
    if not charts:
        return vl.ChartGroup()
    return vl.ChartGroup(bars_of_outcomes.legend(pl.concat(tables)), tuple(charts))


def families(values: pl.DataFrame, metrics: Sequence[Metric]) -> vl.ChartGroup:
    """Metrics by split, averaged over FMIYC's methods of a family and over detectors.

    No chart unless two families have two methods each: less is no comparison of families. Source:
    FMIYC, Figures 4 and 5. Methods count by the names of their entries.

    Args:
        values: Rows like those of `Run.values`.
        metrics: The metrics; one without a value has no chart.
    """
    values_of_families = _values_of_families(values).drop_nulls("value")
    methods_per_family = values_of_families.group_by("family").agg(pl.col("method").n_unique())
    if len(methods_per_family.filter(pl.col("method") > 1)) < 2:
        return vl.ChartGroup()
    means = values_of_families.group_by(
        "metric", "family", split="split_title", maintain_order=True
    ).agg(pl.col("value").mean(), methods=pl.len())
    legend = []
    for family, colour in zip(FAMILIES, vl.COLOURS, strict=False):
        if family in means["family"]:
            legend.append(vl.Key(family, colour, "■"))
    splits = values["split_title"].unique(maintain_order=True).to_list()
    charts = []
    for metric in metrics:
        means_of_metric = means.filter(metric=metric.name).drop("metric")
        if len(means_of_metric):
            charts.append(_family_chart(metric, means_of_metric, splits, legend))
    return vl.ChartGroup(tuple(legend), tuple(charts))


def _values_of_families(values: pl.DataFrame) -> pl.DataFrame:
    """The rows of `FAMILIES`' methods, and of the LaRD with the largest AUROC of each split."""
    family_by_method = {}
    for family, names in FAMILIES.items():
        family_by_method.update(dict.fromkeys(names, family))
    listed = values.filter(pl.col("method").is_in(list(family_by_method))).with_columns(
        family=pl.col("method").replace_strict(family_by_method, return_dtype=pl.String)
    )

    of_lard = values.filter(pl.col("method").is_in(LARD)).with_columns(family=pl.lit("latent"))
    keys = ["run", "split"]
    best = (
        of_lard.filter(metric="auroc")
        .drop_nulls("value")
        .sort("value", descending=True, maintain_order=True)
        .unique(keys, keep="first", maintain_order=True)
        .select(*keys, "method")
    )
    of_best = of_lard.join(best, on=[*keys, "method"], maintain_order="left")
    return pl.concat([listed, of_best])


def _family_chart(
    metric: Metric, rows: pl.DataFrame, splits: list[str], legend: Sequence[vl.Key]
) -> vl.Chart:
    text = vl.describe_rows("{split}, {family}: {value:.1%}", rows)
    return vl.chart(
        f"{metric.title} {metric.arrow}",
        f"{metric.title} by split, averaged over FMIYC's methods of each family. {text}.",
        rows,
        vl.layer("bar"),
        height=190,
        x=vl.nominal("split", title=None, sort=splits, axis={"labelAngle": -35}),
        xOffset=vl.nominal("family", sort=[key.name for key in legend]),
        y=vl.quantitative("value", title=None, axis=vl.PERCENT),
        tooltip=vl.tooltip(
            "split", "family", f"value:.1% {metric.title}", "methods: values averaged"
        ),
        **vl.legend_channels("family", legend),
    )


def methods(run: Run) -> vl.ChartGroup:
    """Each metric of a run: one row per method, one mark per split."""
    return _dots(run.values.with_columns(row="label"), f"of {run.full_title} by method and split")


def _dots(values: pl.DataFrame, subject: str) -> vl.ChartGroup:
    """A chart per metric: one row per name in the column `row`, one mark per split."""
    legend = vl.legend_keys(values["split_title"].unique(maintain_order=True), vl.SHAPES)
    order = values["row"].unique(maintain_order=True).to_list()
    numbers = pl.col("value", "low", "high").round(4)
    rows = values.select("metric", "row", numbers, split="split_title").drop_nulls("value")
    charts = []
    for metric in CHARTED:
        rows_of_metric = rows.filter(metric=metric.name).drop("metric")
        if len(rows_of_metric):
            charts.append(_dot_chart(metric, rows_of_metric, subject, order, legend))
    return vl.ChartGroup(legend, tuple(charts))


def _dot_chart(
    metric: Metric,
    rows: pl.DataFrame,
    subject: str,
    order: Sequence[str],
    legend: Sequence[vl.Key],
) -> vl.Chart:
    scale = {**vl.ROUND, "padding": 8}
    channel = vl.quantitative("value", title=None, axis=vl.PERCENT, scale=scale)
    intervals = vl.layer(
        {"type": "rule", "strokeWidth": 1.5},
        x=vl.quantitative("low", title=None, scale=scale),
        x2={"field": "high"},
        **vl.legend_channels("split", legend),
    )
    points = vl.layer(
        vl.point_mark(70, 0.9), x=channel, **vl.legend_channels("split", legend, shape=vl.SHAPES)
    )
    return vl.chart(
        f"{metric.title} {metric.arrow}",
        f"{metric.title} {subject}; the tables hold the same values.",
        rows,
        # A layer without values has no extent, of which Vega warns.
        *([intervals, points] if rows["low"].count() else [points]),
        step=12 + 8 * len(legend),
        yOffset=vl.nominal("split", sort=[key.name for key in legend]),
        y=vl.nominal("row", title=None, sort=order, axis={"grid": True, "ticks": False}),
        tooltip=vl.tooltip("row of", "split", f"value:.1% {metric.title}"),
    )


def correlations(values: pl.DataFrame) -> vl.Chart | None:
    """Correlations among metrics over all methods, detectors and splits.

    None for fewer than `FEWEST_CORRELATED` of them. Source: FMIYC, Figure 12.
    """
    rows = values.pivot("metric", index=["run", "split", "method"], values="value")
    if len(rows) < FEWEST_CORRELATED:
        return None
    titles = {metric.name: metric.title for metric in CHARTED if rows[metric.name].count()}
    matrix = correlation.matrix(rows.to_dicts(), list(titles))
    cells = []
    for first, correlation_by_metric in matrix.items():
        for second, value in correlation_by_metric.items():
            cells.append((titles[first], titles[second], value))
    schema = {"first": pl.String, "second": pl.String, "value": pl.Float64}
    frame = pl.DataFrame(cells, schema=schema, orient="row").with_columns(pl.col("value").round(4))
    order = list(titles.values())
    pairs = []
    for cell in frame.drop_nulls().iter_rows(named=True):
        if order.index(cell["first"]) < order.index(cell["second"]):
            pairs.append(cell)
    text = vl.describe_rows("{first} and {second} {value:+.2f}", pairs)
    return vl.heat_map(
        "Correlations among metrics",
        f"Pearson's, over {len(rows)} rows of the tables: {text}.",
        frame,
        "value",
        vl.quantitative("value", format="+.2f"),
        # Blue, white and orange are told apart with any colour vision, and each cell holds its
        # number.
        scale={"domain": [-1, 0, 1], "range": ["#E69F00", "#F7F7F7", "#4C9BD0"]},
        step=44,
        x=vl.nominal("second", title=None, sort=order, axis={"labelAngle": 0, "orient": "top"}),
        y=vl.nominal("first", title=None, sort=order),
        tooltip=vl.tooltip("first", "second", "value:+.2f"),
    )


def confusion_at_recall(run: Run, limit: int, *, of_known: bool) -> vl.Chart | None:
    """Known or unknown category × known class that detections assign to it; None without any.

    Detections count that reach, for their class, the confidence at which `diagnosis_recall` of the
    known objects is found (Dhamija et al., 2020, Figure 4, its left or its right part). Of a class
    without known objects none counts.

    Args:
        run: The run.
        limit: Largest number of categories, the most frequent ones.
        of_known: Whether the known categories are shown, else the unknown ones.
    """
    cells = _count_confusions(run, of_known=of_known)
    kind = "Known" if of_known else "Unknown"
    title = f"{kind} objects detected as known classes at the recall of Figure 4"
    return _confusion(cells, "detections", title, limit)


def _confusion(cells: pl.DataFrame, counted: str, title: str, limit: int) -> vl.Chart | None:
    """A heat map of counts by category and class; None without counts.

    Args:
        cells: Columns category, class and `counted`.
        counted: What is counted.
        title: Of the chart.
        limit: Largest number of categories, the most frequent ones.
    """
    if cells.is_empty():
        return None
    totals = cells.group_by("category").agg(pl.col(counted).sum())
    most_frequent = totals.sort(counted, "category", descending=[True, False])["category"]
    most_frequent = most_frequent.head(limit)
    cells = most_frequent.to_frame().join(cells, on="category", maintain_order="left_right")
    if len(most_frequent) < len(totals):
        title += f" ({len(most_frequent)} of {len(totals)} categories)"
    text = vl.describe_rows(f"{{category}} as {{class}} {{{counted}}}", cells)
    return vl.heat_map(
        title,
        f"{counted.capitalize()} by category: {text}.",
        cells,
        counted,
        vl.quantitative(counted),
        step=22,
        x=vl.nominal("class", title="detected as", axis={"labelAngle": -45, "orient": "top"}),
        y=vl.nominal("category", title=None, sort=most_frequent.to_list()),
        tooltip=vl.tooltip("category", "class", f"{counted}:"),
    )


def _count_confusions(run: Run, *, of_known: bool) -> pl.DataFrame:
    """Columns category, class and detections; no rows where the details are not on this machine."""
    rows = []
    table = run.results.table
    known_classes = table.by_part("detector", "class", split=run.id_split or "")
    for category in table.outer_parts("wilderness", "category"):
        if (category in known_classes) != of_known:
            continue
        by_class = table.by_part("wilderness", "class", within={"category": category})
        for class_name, values in by_class.items():
            count = values["detected_as"].value
            rows.append({"category": category, "class": class_name, "detections": count})
    schema = {"category": pl.String, "class": pl.String, "detections": pl.Int64}
    return pl.DataFrame(rows, schema=schema)
