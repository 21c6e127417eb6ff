"""Comparisons of methods and of classifiers.

They are means over splits as OpenOOD reports them, classifiers, and errors on ID images.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from farther.evaluation.long_table import Result, Results
from farther.evaluation.results import Number
from farther.metrics.catalogue import METRICS
from farther.report.charts import ranking
from farther.report.listing import ABSENT, Listing, percent
from farther.report.results import DISTANCES, Run, heading

#: Metrics of means over splits that have columns.
MEANS = ("auroc", "fpr95", "full_spectrum_auroc", "oscr", "macro_auroc")

#: Metrics of errors on ID images that have columns.
ERRORS = ("auroc", "fpr95", "detection_error", "detection_error95", "aurc", "e_aurc")


def content(runs: Sequence[Run], drawn: Sequence[Run]) -> dict[str, Any]:
    """Variables of the page of methods: comparisons of methods.

    Args:
        runs: All evaluated runs, which charts and ranks are over.
        drawn: Those with rows in the tables.
    """
    runs_by_benchmark: dict[str, list[Run]] = {}
    for run in drawn:
        runs_by_benchmark.setdefault(run.benchmark_title, []).append(run)
    means = [_means_table(title, part) for title, part in runs_by_benchmark.items()]
    errors = [_errors_table(title, part) for title, part in runs_by_benchmark.items()]
    return {
        "ranks": ranking.ranks(runs),
        **ranking.comparisons(runs),
        "means": [table for table in means if len(table)],
        "errors": [table for table in errors if len(table)],
    }


def classifiers(runs: Sequence[Run]) -> Listing:
    """Accuracy and calibration of classifiers on the ID test split, and on shifted images."""
    rows = []
    for run in runs:
        quality = run.results.table.values("classifier", split=run.id_split or "")
        if quality:
            row = {
                "Detector": run.full_title,
                "Benchmark": run.benchmark_title,
                "Images": run.id_images or None,
                **_classifier_cells(run, quality),
            }
            rows.append(row)
    caption = (
        "Classifiers on the ID test split, with 95% intervals; "
        "and their accuracy on shifted ID images."
    )
    return Listing.from_rows(
        caption, rows, ["Accuracy (%)", "Top-5 accuracy (%)", "NLL", "ECE (%)"]
    )


def _classifier_cells(run: Run, quality: Results) -> dict[str, Any]:
    """Metrics of a classifier with their intervals, and its accuracy on each shifted split."""
    top_5 = quality.get("accuracy_top5", Result(None))
    cells: dict[str, Any] = {
        "Accuracy (%)": percent(quality["accuracy"].value, quality["accuracy"].interval),
        "Top-5 accuracy (%)": percent(top_5.value, top_5.interval),
        "NLL": _printed_nll(quality["nll"].value, quality["nll"].interval),
        "ECE (%)": percent(quality["ece"].value, quality["ece"].interval),
    }
    for split in run.results.table.splits:
        shifted = run.results.table.values("classifier", split=split)
        if shifted and split != run.id_split:
            cells[f"Accuracy: {split} (%)"] = shifted["accuracy"].value
    return cells


def _printed_nll(value: float | None, interval: Sequence[float] | None) -> str:
    """Negative log-likelihood with three decimals, and its interval if it has one."""
    if value is None:
        return ABSENT
    if not interval:
        return f"{value:.3f}"
    low, high = interval
    return f"{value:.3f} [{low:.3f}, {high:.3f}]"


def _means_table(benchmark: str, runs: Sequence[Run]) -> Listing:
    """Means over the splits of each distance: one row per run and method that has any."""
    rows = []
    splits_by_distance: dict[str, list[str]] = {}
    for run in runs:
        for method in run.methods:
            for distance in DISTANCES:
                if run.has_means(distance, method):
                    splits_by_distance[distance] = run.splits_at(distance)
            cells = dict(_mean_cells(run, method))
            if cells:
                rows.append({"Detector": run.full_title, "Method": run.label(method), **cells})
    caption = (
        f"{benchmark}: means over splits ({_splits_in_words(runs, splits_by_distance)}). "
        "Full-spectrum: shifted ID images count as in-distribution."
    )
    return Listing.from_rows(caption, rows).without_same("Detector")


def _mean_cells(run: Run, method: str) -> Iterator[tuple[str, Number]]:
    """Heading and value of each mean of `MEANS`, the nearest distance first."""
    for distance in DISTANCES:
        for name in MEANS:
            mean = run.mean(distance, method, METRICS[name])
            if mean is not None:
                yield f"{distance.capitalize()} {heading(name)} (%)", mean.value


def _splits_in_words(runs: Sequence[Run], splits_by_distance: Mapping[str, Sequence[str]]) -> str:
    """The splits of each distance with their numbers of images."""
    images = {}
    for run in runs:
        for split in run.splits:
            images[split.name] = run.images(split.name)
    texts = []
    for distance in DISTANCES:
        if distance in splits_by_distance:
            splits = [
                f"{split} ({images[split]:,} images)" for split in splits_by_distance[distance]
            ]
            texts.append(f"{distance}: {', '.join(splits)}")
    return "; ".join(texts)


def _errors_table(benchmark: str, runs: Sequence[Run]) -> Listing:
    """Separation of correct ID test regions from errors: one row per run and method."""
    rows = []
    for run in runs:
        for method in run.methods:
            results = run.group(run.id_split or "", method, "misclassification")
            if not results:
                continue
            row = {
                "Detector": run.full_title,
                "Method": run.label(method),
                "Correct": results["correct"].value,
                "Errors": results["errors"].value,
            }
            for name in ERRORS:
                row[f"{heading(f'misclassification_{name}')} (%)"] = results[name].value
            rows.append(row)
    caption = (
        f"{benchmark}: separation of ID test regions of the right class from errors. AURC is the "
        "mean share of errors among the highest-scored regions, E-AURC its excess over that of a "
        "perfect ranking."
    )
    return Listing.from_rows(caption, rows).without_same("Detector")
