"""Tables of Recalcati et al. (2023): OOD by similarity of classes, and misclassification."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from farther.evaluation.results import ClassifierResults
from farther.report.listing import Listing
from farther.report.papers.table import Paper, PaperTable, Sources, joined_percents, per_run
from farther.report.results import Run

#: Metrics in a cell, and its heading.
CELL_METRICS = ("fpr95", "detection_error95", "auroc")
CELL = "FPR@95%TPR ↓ / detection error at TPR 95% ↓ / AUROC ↑ (%)"

#: Methods of the paper's columns, and their headings.
PRINTED_METHODS = {
    "msp": "MSP",
    "temperature_scaling": "TS",
    "mls": "MLV",
    "odin": "ODIN",
    "ip_ts_mlv": "IP TS MLV",
    "oodl": "OODL",
}

#: Largest OODness of the classes that count as ID → name of the row.
LEVEL_TITLES = {
    "0": "OODness 1 to 3 (ID test images)",
    "1": "T1: OODness 2 and 3",
    "2": "T2: OODness 3",
}


def tables(sources: Sources) -> list[PaperTable]:
    """Section V in numbers, and Tables VI and VII."""
    quality = per_run("The classifier on the ID test split.", _classifiers(sources.runs), _quality)
    detection = [_detection(run) for run in sources.runs]
    errors = [_errors(run) for run in sources.runs]
    if any(detection):
        detection.append(_printed(sources, "VI"))
    if any(errors):
        errors.append(_printed(sources, "VII"))
    return [
        PaperTable(
            "Section V",
            "Accuracy",
            [quality],
            "The paper names top-5 accuracy as the usual metric of Places365, and prints no value.",
        ),
        PaperTable("Table VI", "OOD detection", detection, f"Each cell: {CELL}."),
        PaperTable("Table VII", "Misclassification detection", errors, f"Each cell: {CELL}."),
    ]


def _classifiers(runs: Sequence[Run]) -> Iterator[tuple[Run, ClassifierResults]]:
    """The runs of classifiers, and the quality of each on the ID test split."""
    for run in runs:
        if run.evaluation and run.evaluation.classifier:
            yield run, run.evaluation.classifier


def _quality(run: Run, quality: ClassifierResults) -> Iterator[dict[str, float | None]]:
    yield {
        "Accuracy (%)": quality.values["accuracy"],
        "Top-5 accuracy (%)": quality.values.get("accuracy_top5"),
    }


def _detection(run: Run) -> Listing:
    """OOD detection of a run: one row per split, then one per OODness of classes."""
    rows = [_split_row(run, split.name, split.title) for split in run.splits]
    rows += _level_rows(run)
    caption = (
        f"{run.full_title}. Splits of the benchmark, then all of them by the OODness of classes."
    )
    return Listing.from_rows(caption, rows, _labels(run))


def _split_row(run: Run, split: str, title: str) -> dict[str, Any]:
    values_by_method = {}
    for method in run.methods:
        values_by_method[method] = run.details(split, method).of_group("ood")
    detections = None
    if values_by_method:
        first_values = next(iter(values_by_method.values()))
        detections = first_values.get("ood_regions")
    return {
        "Dataset": title,
        "Images": run.images(split) or None,
        **_cells(run, values_by_method),
        "Detections": detections,
    }


def _level_rows(run: Run) -> list[dict[str, Any]]:
    """One row per OODness up to which classes count as ID."""
    if run.evaluation is None or run.evaluation.classes is None:
        return []
    values_by_level: dict[str, dict[str, Mapping[str, Any]]] = {}
    for method, results_by_level in run.evaluation.classes.id_up_to.items():
        for level, values in results_by_level.items():
            values_by_level.setdefault(level, {})[method] = values
    rows = []
    for level, values_by_method in values_by_level.items():
        title = LEVEL_TITLES.get(level, level)
        rows.append({"Dataset": title, **_cells(run, values_by_method)})
    return rows


def _errors(run: Run) -> Listing:
    """Misclassification detection of a run: one row; empty where it was not measured."""
    if run.evaluation is None:
        return Listing.from_rows("", [])
    values_by_method = {}
    for method in run.methods:
        if method in run.evaluation.methods:
            results = run.evaluation.methods[method]
            values_by_method[method] = results.misclassification.values
    if not values_by_method:
        return Listing.from_rows("", [])
    counts = next(iter(values_by_method.values()))
    caption = (
        f"{run.full_title}, ID test images: "
        f"{counts['correct']:,} correct, {counts['errors']:,} errors."
    )
    return Listing.from_rows(caption, [_cells(run, values_by_method)], _labels(run))


def _printed(sources: Sources, number: str) -> Listing:
    """The values that the paper prints, one row per benchmark."""
    printed = sources.printed("realistic.csv", ("table", "dataset", "method"), CELL_METRICS)
    row_by_dataset: dict[str, dict[str, Any]] = {}
    for printed_row in printed.filter(table=number).iter_rows(named=True):
        dataset = printed_row["dataset"]
        row = row_by_dataset.setdefault(dataset, {"Dataset": dataset})
        row[PRINTED_METHODS[printed_row["method"]]] = _cell(printed_row)
    return Listing.from_rows(
        "As printed, for ResNet-50 on Places365.",
        list(row_by_dataset.values()),
        list(PRINTED_METHODS.values()),
    )


def _cells(run: Run, values_by_method: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Label of each method → its cell."""
    return {run.label(method): _cell(values) for method, values in values_by_method.items()}


def _cell(values: Mapping[str, Any]) -> str:
    return joined_percents([values.get(metric) for metric in CELL_METRICS])


def _labels(run: Run) -> list[str]:
    return [run.label(method) for method in run.methods]


PAPER = Paper(
    "realistic",
    "Class similarity",
    "Recalcati et al., 2023: Toward a Realistic Benchmark for Out-of-Distribution Detection. "
    "arXiv:2404.10474",
    tables,
    {
        "Table I": "usage of data sets in the literature",
        "Tables II to V": "composition of data sets: page Data has the images and objects of each"
        " split",
        "columns ODIN, IP TS MLV, OODL": "shown where params.yaml lists them; the first two need a "
        "pass of kind perturb",
    },
)
