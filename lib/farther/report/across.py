"""The page of comparisons: means over splits as OpenOOD reports them, classifiers, errors on ID images."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import polars as pl

from farther.evaluation.results import MetricValues
from farther.metrics.catalogue import METRICS
from farther.report import ranking
from farther.report.charts import vega as vl
from farther.report.listing import ABSENT, Listing, between, percent
from farther.report.overview import id_images
from farther.report.results import DISTANCES, Run, title_of

#: Metrics of means over splits that have columns.
MEANS = ("auroc", "fpr95", "full_spectrum_auroc", "oscr", "macro_auroc")

#: Metrics of errors on ID images that have columns.
ERRORS = ("auroc", "fpr95", "detection_error", "aurc", "e_aurc")


#: Sections of the page.
SECTIONS = {
    "classifiers": "Classifiers",
    "ranks": "Images and objects",
    "mean-ranks": "Mean ranks",
    "agreement": "Do classic metrics rank as open-set metrics do?",
    "gaps": "Near against far",
    "means": "Means over splits",
    "errors": "Errors on ID images",
}


def content(runs: Sequence[Run]) -> dict[str, Any]:
    """Variables of the template `across.html`."""
    benchmarks = dict.fromkeys(run.benchmark_title for run in runs)
    means = {name: _means(name, [run for run in runs if run.benchmark_title == name]) for name in benchmarks}
    errors = {name: _errors(name, [run for run in runs if run.benchmark_title == name]) for name in benchmarks}
    found = {
        "classifiers": classifiers(runs),
        "ranks": ranks(runs),
        **ranking.content(runs),
        "means": {name: listing for name, listing in means.items() if listing},
        "errors": {name: listing for name, listing in errors.items() if listing},
    }
    return {
        **found,
        "contents": {anchor: title for anchor, title in SECTIONS.items() if found[anchor.replace("-", "_")]},
    }


def classifiers(runs: Sequence[Run]) -> Listing | None:
    """Accuracy and calibration of classifiers on the ID test split, and accuracy on shifted images."""
    rows = []
    for run in runs:
        found = run.evaluation and run.evaluation.classifier
        if found:
            of_metric = {
                f"{METRICS[name].title}{' (%)' if name != 'nll' else ''}": _with_interval(name, found)
                for name in ("accuracy", "nll", "ece")
            }
            shifted = {f"Accuracy: {name} (%)": values["accuracy"] for name, values in found.shifted.items()}
            counts = {"Images": id_images(run)}
            row = {"Detector": run.full_title, "Benchmark": run.benchmark_title}
            rows.append({**row, **counts, **of_metric, **shifted})
    numbers = ["Accuracy (%)", "NLL", "ECE (%)"]
    caption = "Classifiers on the ID test split, with 95% intervals; and their accuracy on shifted ID images."
    return Listing.of(caption, rows, numbers) if rows else None


def _with_interval(name: str, found: MetricValues) -> str:
    value, interval = found.values[name], found.intervals.get(name)
    if value is None:
        return ABSENT
    if name == "nll":
        return f"{value:.3f}" + (f" ({interval[0]:.3f} to {interval[1]:.3f})" if interval else "")
    return percent(value) + (f" ({between(interval)})" if interval else "")


def _means(benchmark: str, runs: Sequence[Run]) -> Listing | None:
    rows = []
    splits: dict[str, list[str]] = {}
    for run in runs:
        for method in run.methods:
            found = run.means(method)
            splits |= {distance: of.splits for distance, of in found.items()}
            cells = {}
            for distance in (name for name in DISTANCES if name in found):
                values = found[distance].values
                for metric in (METRICS[name] for name in MEANS if name in values):
                    head = f"{distance.capitalize()} {metric.title}\N{NO-BREAK SPACE}{metric.arrow} (%)"
                    cells[head] = values[metric.name]
            if cells:
                rows.append({"Detector": run.full_title, "Method": run.label(method), **cells})
    images = {split.name: run.images(split.name) for run in runs for split in run.splits}
    over = "; ".join(
        f"{name}: {', '.join(f'{split} ({images[split]:,} images)' for split in splits[name])}"
        for name in DISTANCES
        if name in splits
    )
    caption = f"{benchmark}: means over splits ({over}). Full-spectrum: shifted ID images count as in-distribution."
    return Listing.of(caption, rows) if rows else None


def _errors(benchmark: str, runs: Sequence[Run]) -> Listing | None:
    rows = []
    for run in runs:
        for method in run.methods:
            results = run.method(method)
            if results:
                found = results.misclassification.values
                heads = {name: METRICS[f"misclassification_{name}"] for name in ERRORS}
                cells = {
                    f"{metric.title}\N{NO-BREAK SPACE}{metric.arrow} (%)": found[name] for name, metric in heads.items()
                }
                counts = {"Correct": found["correct"], "Errors": found["errors"]}
                rows.append({"Detector": run.full_title, "Method": run.label(method), **counts, **cells})
    caption = (
        f"{benchmark}: separation of ID test regions of the right class from errors. AURC is the mean share of errors "
        "among the highest-scored regions, E-AURC what exceeds that of a perfect order."
    )
    return Listing.of(caption, rows) if rows else None


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
            rows.append({"side": side, "rank": place, "method": title_of(name), "auroc": round(auroc[name], 4)})
    text = vl.said("{method} on {side}: {rank} ({auroc:.1%})", rows)
    counted = f"classifiers: {len(sides['whole images'])}; detectors: {len(sides['objects'])}"
    drawn = vl.chart(
        "Rank by mean AUROC, 1 is best",
        f"Rank of each method by its AUROC, averaged over splits and runs ({counted}). {text}.",
        pl.DataFrame(rows),
        vl.layer({"type": "line", "strokeWidth": 2}),
        vl.layer(vl.points(70), **vl.by("method", legend, shape=vl.SHAPES)),
        height=60 + 28 * len(methods),
        x=vl.named("side", title=None, sort=list(sides), scale={"padding": 0.3}, axis={"labelAngle": 0}),
        y=vl.number(
            "rank", title="rank", scale={"reverse": True, "domain": [1, len(methods)]}, axis={"tickMinStep": 1}
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
