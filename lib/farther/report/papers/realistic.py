"""Tables of Recalcati et al. (2023): OOD by similarity of classes, and misclassification."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from farther.report.listing import Listing
from farther.report.papers.table import PaperTable, Sources, listing, together
from farther.report.results import Run

#: Parts of a cell, and its heading.
PARTS = ("fpr95", "detection_error", "auroc")
CELL = "FPR@95%TPR ↓ / detection error ↓ / AUROC ↑ (%)"

#: Names of the rows where classes of low OODness count as ID.
COUNTED = {"0": "OODness 1 to 3 (ID test images)", "1": "T1: OODness 2 and 3", "2": "T2: OODness 3"}

ABSENT = {
    "Table I": "usage of data sets in the literature",
    "Tables II to V": "composition of data sets: page Splits has the images and objects of each split",
    "columns ODIN, IP TS MLV, OODL": "shown where params.yaml lists them; the first two need a pass of kind perturb",
}


def tables(sources: Sources) -> list[PaperTable]:
    """Tables VI and VII."""
    return [
        PaperTable("Table VI", "OOD detection", _detection(sources.runs), f"Each cell: {CELL}."),
        PaperTable("Table VII", "Misclassification detection", _errors(sources.runs), f"Each cell: {CELL}."),
    ]


def _detection(runs: Sequence[Run]) -> list[Listing]:
    found = []
    for run in runs:
        rows: list[dict[str, Any]] = []
        for split in run.splits:
            row: dict[str, Any] = {"Dataset": split.title, "Images": run.images(split.name) or None}
            details = {method: run.details(split.name, method).get("ood", {}) for method in run.methods}
            row |= {run.label(method): together([of.get(part) for part in PARTS]) for method, of in details.items()}
            rows.append({**row, "Detections": next((of.get("ood_regions") for of in details.values()), None)})
        rows += _by_classes(run)
        caption = f"{run.full_title}. Splits of the benchmark, then all of them by the OODness of classes."
        found += listing(caption, rows, run_labels(run))
    return found


def _by_classes(run: Run) -> list[dict[str, Any]]:
    classes = run.evaluation.get("classes") or {}
    by_level = classes.get("id_up_to", {})
    levels = dict.fromkeys(level for of in by_level.values() for level in of)
    return [
        {
            "Dataset": COUNTED.get(level, level),
            **{
                run.label(m): together([of[level][part] for part in PARTS]) for m, of in by_level.items() if level in of
            },
        }
        for level in levels
    ]


def _errors(runs: Sequence[Run]) -> list[Listing]:
    found = []
    for run in runs:
        of = {method: run.method(method).get("misclassification", {}) for method in run.methods}
        counts: Mapping[str, Any] = next(iter(of.values()), {})
        row = {run.label(method): together([values.get(part) for part in PARTS]) for method, values in of.items()}
        if counts:
            caption = f"{run.full_title}, ID test images: {counts['correct']:,} correct, {counts['errors']:,} errors."
            found += listing(caption, [row], run_labels(run))
    return found


def run_labels(run: Run) -> list[str]:
    """Headings of the columns of a run's methods."""
    return [run.label(method) for method in run.methods]
