"""Tables of The Overlooked Elephant of Object Detection (Dhamija et al., 2020): the impact of wilderness."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from farther.report.listing import Listing, percent
from farther.report.overview import IMAGES, images
from farther.report.papers.table import PaperTable, Sources, listing
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

ABSENT = {
    "rows Mask R-CNN, RetinaNet and YOLOv2": "detectors are those of params.yaml; their printed values: page Published",
    "row Dropout Sampling": "a method, not a detector, here: see mutual_information in docs/methods.md",
}


def tables(sources: Sources) -> list[PaperTable]:
    """Tables 1 to 4, and Figure 3 as numbers."""
    found = [(run, run.evaluation["wilderness"]) for run in sources.detectors if run.evaluation.get("wilderness")]
    return [
        PaperTable("Table 1", "mAP on ID images, and with one OOD image per ID image", _quality(found)),
        PaperTable("Table 2", "Average wilderness impact", _impact(found)),
        PaperTable(
            "Figure 3",
            "Error diagnosis",
            _errors(found),
            "Causes of wrong detections where a share of the known objects is found; the paper draws recall 0.3.",
        ),
        PaperTable("Table 3", "Class against background probability", list(_background(found))),
        PaperTable(
            "Table 4",
            "Operating points by F_β",
            list(_points(found)),
            f"Of class {COW}, as in the paper, where a detector knows it; otherwise means over the classes.",
        ),
    ]


_Found = Sequence[tuple[Run, Mapping[str, Any]]]


def _quality(found: _Found) -> list[Listing]:
    rows = [
        {
            "Algorithm": run.full_title,
            "ID test images (%)": wild["map_closed"],
            "Open-Set WR1 (%)": wild["map_open"],
            IMAGES: images(run),
        }
        for run, wild in found
    ]
    caption = "mAP at IoU 0.5. WR1: for each ID image an OOD image without known objects is added."
    return listing(caption, rows, [IMAGES])


def _impact(found: _Found) -> list[Listing]:
    heads = list(dict.fromkeys(f"Recall {at}" for _, wild in found for at in sorted(wild["at_recall"])))
    rows = []
    for run, wild in found:
        impacts = {at: (of or {}).get("average_impact") for at, of in wild["at_recall"].items()}
        values = {f"Recall {at}": f"{impact:.4f}" for at, impact in impacts.items() if impact is not None}
        rows.append({"Algorithm": run.full_title, **{head: values.get(head) for head in heads}, IMAGES: images(run)})
    return listing("Wilderness impact, mean over the wilderness ratios.", rows, [*heads, IMAGES])


def _errors(found: _Found) -> list[Listing]:
    rows = []
    for run, wild in found:
        errors = wild["errors"]
        for recall in (recall for recall in RECALLS if recall in errors["recalls"]):
            at = errors["recalls"].index(recall)
            row = {"Algorithm": run.full_title, "Recall": f"{recall:g}", "Detections": errors["detections"][at]}
            rows.append({**row, **{title: errors["shares"][cause][at] for cause, title in CAUSES.items()}})
    return listing(
        "Shares of the detections, in ID test images and up to one OOD image per ID image.", rows, ["Recall"]
    )


def _background(found: _Found) -> Iterator[Listing]:
    for run, wild in found:
        classes = wild["background"]["known"]["classes"] if wild["background"] else {}
        rows = [
            {"Class": name, "Mean": of["mean"], "Standard deviation": of["sd"], "Detections": of["detections"]}
            for name, of in classes.items()
        ]
        caption = f"{run.full_title}: class minus background probability of correct detections."
        yield from listing(caption, rows, few=run.few)


def _points(found: _Found) -> Iterator[Listing]:
    for run, wild in found:
        points = wild["operating_points"]
        rows = []
        for n, ratio in enumerate(points["ratios"]):
            row: dict[str, Any] = {"WR": f"{ratio:g}"}
            for beta, of in points["betas"].items():
                values = of["classes"].get(COW) or of["mean"]
                if values is not None:
                    row |= {
                        f"F{beta} score": f"{values['f'][n]:.2f}",
                        f"F{beta}: Prec.": percent(values["precision"][n]),
                        f"F{beta}: Recall": percent(values["recall"][n]),
                        f"F{beta}: Thre.": f"{values['threshold'][n]:.2f}",
                    }
            rows.append(row)
        what = (
            f"class {COW}" if any(COW in of["classes"] for of in points["betas"].values()) else "mean over the classes"
        )
        classes = run.evaluation.get("closed_set", {}).get("per_class", {})
        objects = classes.get(COW, {}).get("objects") or sum(of["objects"] for of in classes.values())
        if rows and len(rows[0]) > 1:
            yield from listing(f"{run.full_title}, {what}, {objects:,} objects.", rows, list(rows[0]))
