"""Tables of Recalcati et al. (2023): OOD by similarity of classes, and misclassification."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from farther.evaluation.results import ClassifierResults
from farther.report.listing import Listing
from farther.report.papers.table import Paper, PaperTable, Sources, per_run, together
from farther.report.results import Run

#: Parts of a cell, and its heading.
PARTS = ("fpr95", "detection_error95", "auroc")
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

#: Names of the rows where classes of low OODness count as ID.
COUNTED = {"0": "OODness 1 to 3 (ID test images)", "1": "T1: OODness 2 and 3", "2": "T2: OODness 3"}


def tables(sources: Sources) -> list[PaperTable]:
    """Tables VI and VII."""
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
    rows: list[dict[str, Any]] = []
    for split in run.splits:
        details = {
            method: run.details(split.name, method).of_group("ood") for method in run.methods
        }
        counts = [of.get("ood_regions") for of in details.values()]
        row = {
            "Dataset": split.title,
            "Images": run.images(split.name) or None,
            **_cells(run, details),
        }
        rows.append({**row, "Detections": next(iter(counts), None)})
    by_level = run.evaluation.classes.id_up_to if run.evaluation and run.evaluation.classes else {}
    for level in dict.fromkeys(level for of in by_level.values() for level in of):
        found = {method: of[level] for method, of in by_level.items() if level in of}
        rows.append({"Dataset": COUNTED.get(level, level), **_cells(run, found)})
    caption = (
        f"{run.full_title}. Splits of the benchmark, then all of them by the OODness of classes."
    )
    return Listing.of(caption, rows, list(map(run.label, run.methods)))


def _errors(run: Run) -> Listing:
    results = run.evaluation.methods if run.evaluation else {}
    found = {
        method: results[method].misclassification.values
        for method in run.methods
        if method in results
    }
    if not found:
        return Listing.of("", [])
    counts = next(iter(found.values()))
    caption = f"{run.full_title}, ID test images: {counts['correct']:,} correct, {counts['errors']:,} errors."
    return Listing.of(caption, [_cells(run, found)], list(map(run.label, run.methods)))


def _printed(sources: Sources, number: str) -> Listing:
    """The values that the paper prints, one row per benchmark."""
    printed = sources.printed("realistic.csv", ("table", "dataset", "method"), PARTS)
    rows: dict[str, dict[str, Any]] = {}
    for value in printed.filter(table=number).iter_rows(named=True):
        row = rows.setdefault(value["dataset"], {"Dataset": value["dataset"]})
        row[PRINTED_METHODS[value["method"]]] = together([value[part] for part in PARTS])
    return Listing.of(
        "As printed, for ResNet-50 on Places365.",
        list(rows.values()),
        list(PRINTED_METHODS.values()),
    )


def _cells(run: Run, found: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Label of each method → its cell."""
    return {
        run.label(method): together([of.get(part) for part in PARTS])
        for method, of in found.items()
    }


PAPER = Paper(
    "realistic",
    "Class similarity",
    "Recalcati et al., 2023: Toward a Realistic Benchmark for Out-of-Distribution Detection. arXiv:2404.10474",
    tables,
    {
        "Table I": "usage of data sets in the literature",
        "Tables II to V": "composition of data sets: page Splits has the images and objects of each split",
        "columns ODIN, IP TS MLV, OODL": "shown where params.yaml lists them; the first two need a pass of "
        "kind perturb",
    },
)
