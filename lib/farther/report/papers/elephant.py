"""Tables of The Overlooked Elephant of Object Detection (Dhamija et al., 2020): wilderness."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from farther.evaluation.results import Evaluation
from farther.report.listing import Listing, percent
from farther.report.papers.table import Paper, PaperTable, Sources, per_run
from farther.report.results import Run

#: The class of the paper's Table 4.
COW = "cow"

#: Recalls of the rows of errors, and titles of their causes.
RECALLS = (0.1, 0.3, 0.5)
CAUSES = {
    "correct": "Correct (%)",
    "localisation": "Localisation (%)",
    "similar": "Similar class (%)",
    "other_class": "Other class (%)",
    "background": "Background (%)",
    "unknown_unknown": "Unknown unknowns (%)",
    "mixed_unknown": "Mixed unknowns (%)",
}

#: A run and its evaluation.
EvaluatedRun = tuple[Run, Evaluation]


def tables(sources: Sources) -> list[PaperTable]:
    """Tables 1 to 4, and Figure 3 as numbers."""
    evaluated: list[EvaluatedRun] = []
    for run in sources.detectors:
        if run.evaluation:
            evaluated.append((run, run.evaluation))
    return [
        _quality_table(evaluated),
        _impact_table(evaluated),
        _error_table(evaluated),
        PaperTable(
            "Table 3",
            "Class against background probability",
            [_background_listing(run, evaluation) for run, evaluation in evaluated],
        ),
        PaperTable(
            "Table 4",
            "Operating points by F_β",
            [_operating_points(run, evaluation) for run, evaluation in evaluated],
            f"Of class {COW}, as in the paper, where a detector knows it; otherwise means over the "
            "classes.",
        ),
    ]


def _quality_table(evaluated: Sequence[EvaluatedRun]) -> PaperTable:
    caption = "mAP at IoU 0.5. WR1: for each ID image an OOD image without known objects is added."
    return PaperTable(
        "Table 1",
        "mAP on ID images, and with one OOD image per ID image",
        [per_run(caption, evaluated, _quality_cells, first="Algorithm")],
    )


def _quality_cells(run: Run, evaluation: Evaluation) -> Iterator[dict[str, Any]]:
    wilderness = evaluation.wilderness
    yield {"ID test images (%)": wilderness.map_closed, "Open-Set WR1 (%)": wilderness.map_open}


def _impact_table(evaluated: Sequence[EvaluatedRun]) -> PaperTable:
    recalls: set[str] = set()
    for _, evaluation in evaluated:
        recalls.update(evaluation.wilderness.at_recall)
    caption = "Wilderness impact, mean over the wilderness ratios."
    headings = [f"Recall {recall}" for recall in sorted(recalls)]
    return PaperTable(
        "Table 2",
        "Average wilderness impact",
        [per_run(caption, evaluated, _impact_cells, headings, first="Algorithm")],
    )


def _impact_cells(run: Run, evaluation: Evaluation) -> Iterator[dict[str, Any]]:
    cells: dict[str, str | None] = {}
    for recall, results in sorted(evaluation.wilderness.at_recall.items()):
        impact = results.average_impact
        cells[f"Recall {recall}"] = None if impact is None else f"{impact:.4f}"
    yield cells


def _error_table(evaluated: Sequence[EvaluatedRun]) -> PaperTable:
    rows: list[dict[str, Any]] = []
    for run, evaluation in evaluated:
        rows += _error_rows(run, evaluation)
    caption = "Shares of the detections, in ID test images and up to one OOD image per ID image."
    return PaperTable(
        "Figure 3",
        "Error diagnosis",
        [Listing.from_rows(caption, rows, ["Recall"])],
        "Causes of wrong detections where a share of the known objects is found; the paper draws "
        "recall 0.3.",
    )


def _error_rows(run: Run, evaluation: Evaluation) -> Iterator[dict[str, Any]]:
    """One row per recall that the detector reaches: the share of each cause of errors."""
    errors = evaluation.wilderness.errors
    for recall in RECALLS:
        if recall not in errors.recalls:
            continue
        index = errors.recalls.index(recall)
        row: dict[str, Any] = {
            "Algorithm": run.full_title,
            "Recall": f"{recall:g}",
            "Detections": errors.detections[index],
        }
        for cause, title in CAUSES.items():
            row[title] = errors.shares[cause][index]
        yield row


def _background_listing(run: Run, evaluation: Evaluation) -> Listing:
    """One row per class: the margin between class and background probability."""
    rows = []
    background = evaluation.wilderness.background
    if background is not None:
        for name, margins in background.known.classes.items():
            rows.append(
                {
                    "Class": name,
                    "Mean": margins["mean"],
                    "Standard deviation": margins["sd"],
                    "Detections": margins["detections"],
                }
            )
    caption = f"{run.full_title}: class minus background probability of correct detections."
    return Listing.from_rows(caption, rows, few=run.few)


def _operating_points(run: Run, evaluation: Evaluation) -> Listing:
    """One row per wilderness ratio: the best threshold by F_β, and its precision and recall."""
    points = evaluation.wilderness.operating_points
    knows_cows = any(COW in f_beta.classes for f_beta in points.betas.values())
    title = f"class {COW}" if knows_cows else "mean over the classes"
    caption = f"{run.full_title}, {title}, {_count_objects(evaluation):,} objects."

    values_by_beta: dict[str, Mapping[str, Sequence[float]]] = {}
    for beta, f_beta in points.betas.items():
        best = f_beta.classes.get(COW) or f_beta.mean
        if best is not None:
            values_by_beta[beta] = best
    if not points.ratios:
        return Listing.from_rows(caption, [])

    rows = []
    for index, ratio in enumerate(points.ratios):
        row = {"WR": f"{ratio:g}"}
        for beta, values in values_by_beta.items():
            row[f"F{beta} score"] = f"{values['f'][index]:.2f}"
            row[f"F{beta}: Prec."] = percent(values["precision"][index])
            row[f"F{beta}: Recall"] = percent(values["recall"][index])
            row[f"F{beta}: Thre."] = f"{values['threshold'][index]:.2f}"
        rows.append(row)
    headings = list(rows[0])
    if not values_by_beta:
        rows = []
    return Listing.from_rows(caption, rows, headings)


def _count_objects(evaluation: Evaluation) -> float:
    """Number of cows in the ID test split, or of all known objects where there are none."""
    count_by_class = {}
    for name, values in evaluation.closed_set.per_class.items():
        count_by_class[name] = values["objects"] or 0
    if count_by_class.get(COW):
        return count_by_class[COW]
    return sum(count_by_class.values())


PAPER = Paper(
    "elephant",
    "The Overlooked Elephant",
    "Dhamija et al., 2020: The Overlooked Elephant of Object Detection: Open Set. "
    "https://doi.org/10.1109/WACV45572.2020.9093355",
    tables,
    {
        "rows Mask R-CNN, RetinaNet and YOLOv2": "detectors are those of params.yaml; their printed"
        " values: page Papers",
        "Section 2": "the column Classifier of the page Compare says how each detector rejects "
        "what is no object",
        "Figure 4": "the page of each detector, under Charts, has the confusion of known and of "
        "unknown objects",
        "row Dropout Sampling": "a run of the adapter `repeated`, where params.yaml has one: see "
        "farther list detectors repeated",
    },
)
