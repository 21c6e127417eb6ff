"""Tables of The Overlooked Elephant of Object Detection (Dhamija et al., 2020): the impact of wilderness."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from farther.evaluation.results import ErrorCauses, Evaluation
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


def tables(sources: Sources) -> list[PaperTable]:
    """Tables 1 to 4, and Figure 3 as numbers."""
    found = [(run, run.evaluation) for run in sources.detectors if run.evaluation]
    quality = "mAP at IoU 0.5. WR1: for each ID image an OOD image without known objects is added."
    impact = "Wilderness impact, mean over the wilderness ratios."
    heads = [
        f"Recall {at}"
        for at in sorted({at for _, evaluation in found for at in evaluation.wilderness.at_recall})
    ]
    errors = [
        {"Algorithm": run.full_title, **row}
        for run, of in found
        for row in _errors(of.wilderness.errors)
    ]
    shares = "Shares of the detections, in ID test images and up to one OOD image per ID image."
    return [
        PaperTable(
            "Table 1",
            "mAP on ID images, and with one OOD image per ID image",
            [per_run(quality, found, _quality, first="Algorithm")],
        ),
        PaperTable(
            "Table 2",
            "Average wilderness impact",
            [per_run(impact, found, _impact, heads, first="Algorithm")],
        ),
        PaperTable(
            "Figure 3",
            "Error diagnosis",
            [Listing.of(shares, errors, ["Recall"])],
            "Causes of wrong detections where a share of the known objects is found; the paper draws recall 0.3.",
        ),
        PaperTable(
            "Table 3",
            "Class against background probability",
            [_background(*pair) for pair in found],
        ),
        PaperTable(
            "Table 4",
            "Operating points by F_β",
            [_points(*pair) for pair in found],
            f"Of class {COW}, as in the paper, where a detector knows it; otherwise means over the classes.",
        ),
    ]


def _quality(run: Run, evaluation: Evaluation) -> Iterator[dict[str, Any]]:
    wild = evaluation.wilderness
    yield {"ID test images (%)": wild.map_closed, "Open-Set WR1 (%)": wild.map_open}


def _impact(run: Run, evaluation: Evaluation) -> Iterator[dict[str, Any]]:
    impacts = {at: of.average_impact for at, of in sorted(evaluation.wilderness.at_recall.items())}
    yield {
        f"Recall {at}": None if impact is None else f"{impact:.4f}"
        for at, impact in impacts.items()
    }


def _errors(errors: ErrorCauses) -> Iterator[dict[str, Any]]:
    for recall in RECALLS:
        if recall in errors.recalls:
            at = errors.recalls.index(recall)
            shares = {title: errors.shares[cause][at] for cause, title in CAUSES.items()}
            yield {"Recall": f"{recall:g}", "Detections": errors.detections[at], **shares}


def _background(run: Run, evaluation: Evaluation) -> Listing:
    background = evaluation.wilderness.background
    classes = background.known.classes if background else {}
    rows = (
        {
            "Class": name,
            "Mean": of["mean"],
            "Standard deviation": of["sd"],
            "Detections": of["detections"],
        }
        for name, of in classes.items()
    )
    return Listing.of(
        f"{run.full_title}: class minus background probability of correct detections.",
        rows,
        few=run.few,
    )


def _points(run: Run, evaluation: Evaluation) -> Listing:
    points = evaluation.wilderness.operating_points
    of_beta = {beta: of.classes.get(COW) or of.mean for beta, of in points.betas.items()}
    rows = [
        {
            "WR": f"{ratio:g}",
            **{
                head: text
                for beta, values in of_beta.items()
                if values is not None
                for head, text in (
                    (f"F{beta} score", f"{values['f'][n]:.2f}"),
                    (f"F{beta}: Prec.", percent(values["precision"][n])),
                    (f"F{beta}: Recall", percent(values["recall"][n])),
                    (f"F{beta}: Thre.", f"{values['threshold'][n]:.2f}"),
                )
            },
        }
        for n, ratio in enumerate(points.ratios)
    ]
    knows_cows = any(COW in of.classes for of in points.betas.values())
    known = {name: of["objects"] or 0 for name, of in evaluation.closed_set.per_class.items()}
    objects = known.get(COW) or sum(known.values())
    what = f"class {COW}" if knows_cows else "mean over the classes"
    caption = f"{run.full_title}, {what}, {objects:,} objects."
    has_values = any(values is not None for values in of_beta.values())
    return Listing.of(caption, rows if has_values else [], list(rows[0]) if rows else ())


PAPER = Paper(
    "elephant",
    "The Overlooked Elephant",
    "Dhamija et al., 2020: The Overlooked Elephant of Object Detection: Open Set. "
    "https://doi.org/10.1109/WACV45572.2020.9093355",
    tables,
    {
        "rows Mask R-CNN, RetinaNet and YOLOv2": "detectors are those of params.yaml; their printed values: page "
        "Published",
        "Section 2": "the column Classifier of the page Detectors says how each detector rejects what is no object",
        "Figure 4": "the page of each detector has the confusion of known and of unknown objects",
        "row Dropout Sampling": "a run of the adapter `repeated`, where params.yaml has one: see docs/wilderness.md",
    },
)
