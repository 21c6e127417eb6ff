"""Tables of SAOD (Oksuz et al., 2023): self-aware detectors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from farther.report.listing import Listing
from farther.report.overview import IMAGES, images
from farther.report.papers.table import PaperTable, Sources, by_detector, listing
from farther.report.results import DISTANCES, Run

#: Calibrators as the paper abbreviates them, in its order, then those it does not have.
CALIBRATORS = {"none": "uncalibrated", "linear": "LR", "histogram": "HB", "isotonic": "IR"}

#: Aggregates in the order of Table 2.
AGGREGATES = ("sum", "mean", "top-5", "top-3", "top-2", "min")

#: Image thresholds as in Table A.12.
METHODS = {"keep_95": "TPR@0.95", "pseudo_ood": "pseudo-OOD"}

ABSENT = {
    "Table 1": "the splits are those of params.yaml: page Splits",
    "Table 3, A.9, A.10, A.11": "only 1 − p is made into an image's uncertainty. Other uncertainties of detections are "
    "methods (entropy, dempster_shafer, box_uncertainty): AUROC per image on the detectors' pages",
    "Table 6, last columns": "LRP and AP on the validation images are not computed",
    "Table A.8": "AP on shifted images is computed by bin of uncertainty only: page Self-awareness",
    "Table A.13 and A.14, column AP": "detections that are added or removed are not evaluated by AP",
    "Table A.15": "compares trainings: a run per training shows the same in Table 6",
}


def tables(sources: Sources) -> list[PaperTable]:
    """Tables 2, 4 to 7, A.12 to A.14 and A.16."""
    found = [(run, run.evaluation["self_awareness"]) for run in sources.runs if run.evaluation.get("self_awareness")]
    return [
        PaperTable("Table 2", "Image uncertainty by aggregate", _aggregates(found)),
        PaperTable("Table 4", "Image uncertainty by subset of the OOD images", list(_subsets(found))),
        PaperTable("Table 5", "Calibration", _calibration(found)),
        PaperTable("Table 6", "Self-aware detectors", _detectors(found)),
        PaperTable("Table 7", "What each part contributes", _ablation(found)),
        PaperTable("Table A.12", "Image thresholds", _image_thresholds(found)),
        PaperTable("Tables A.13 and A.14", "Dummy detections, and confidence thresholds", _dummies(found)),
        PaperTable("Table A.16", "Self-aware detectors, with the parts of LRP", _in_full(found)),
    ]


_Found = Sequence[tuple[Run, Mapping[str, Any]]]


def _aggregates(found: _Found) -> list[Listing]:
    rows = [
        {
            **by_detector(run),
            **{f"{how} (%)": aware["aggregates"][how]["all"] for how in AGGREGATES if how in aware["aggregates"]},
            IMAGES: images(run),
        }
        for run, aware in found
    ]
    caption = "AUROC of 1 − p, aggregated over the detections of an image; top-m: mean of the m most certain ones."
    return listing(caption, rows, [IMAGES])


def _subsets(found: _Found) -> Iterator[Listing]:
    for benchmark in dict.fromkeys(run.benchmark for run, _ in found):
        rows = []
        for run, aware in found:
            if run.benchmark == benchmark:
                names = sorted(run.splits, key=lambda split: DISTANCES.index(split.distance))
                subsets = {
                    f"{split.title}, {run.images(split.name):,} images (%)": aware["splits"][split.name]["auroc"]
                    for split in names
                    if split.name in aware["splits"]
                }
                whole = {"all OOD (%)": aware["splits"]["all"]["auroc"], IMAGES: images(run)}
                rows.append({**by_detector(run), **subsets, **whole})
        caption = f"{benchmark}: AUROC of image uncertainty, near to far; OOD splits without known objects."
        yield from listing(caption, rows, [IMAGES])


def _calibration(found: _Found) -> list[Listing]:
    rows = []
    for run, aware in found:
        kinds = [kind for kind in (*CALIBRATORS, *aware["calibrated"]) if kind in aware["calibrated"]]
        for name, title in (("laece", "LaECE"), ("lrp", "LRP"), ("idq", "IDQ")):
            values = {f"{CALIBRATORS.get(kind, kind)} (%)": aware["calibrated"][kind][name] for kind in kinds}
            rows.append({**by_detector(run), "Metric": title, **values, IMAGES: images(run)})
    caption = "LaECE and LRP, and IDQ, on accepted ID test images. LR: linear; HB: histogram; IR: isotonic."
    return listing(caption, rows, [IMAGES])


def _detectors(found: _Found) -> list[Listing]:
    heads = {
        "daq": "DAQ ↑ (%)",
        "balanced_accuracy": "BA ↑ (%)",
        "idq": "IDQ ↑ (%)",
        "laece": "LaECE ↓ (%)",
        "lrp": "LRP ↓ (%)",
        "idq_t": "T(ID) IDQ ↑ (%)",
        "laece_t": "T(ID) LaECE ↓ (%)",
        "lrp_t": "T(ID) LRP ↓ (%)",
    }
    return listing("T(ID): shifted ID images.", [_row(run, aware, heads) for run, aware in found], [IMAGES])


def _in_full(found: _Found) -> list[Listing]:
    heads = {"daq": "DAQ ↑ (%)", "balanced_accuracy": "BA ↑ (%)", "tpr": "TPR ↑ (%)", "tnr": "TNR ↑ (%)"}
    names = {
        "idq": "IDQ ↑",
        "laece": "LaECE ↓",
        "lrp": "LRP ↓",
        "lrp_loc": "LRP_Loc ↓",
        "lrp_fp": "LRP_FP ↓",
        "lrp_fn": "LRP_FN ↓",
    }
    heads |= {name: f"{title} (%)" for name, title in names.items()}
    heads |= {f"{name}_t": f"T(ID) {title} (%)" for name, title in names.items()}
    caption = "LRP_Loc: mean of 1 − IoU of true positives; LRP_FP: 1 − precision; LRP_FN: 1 − recall."
    return listing(caption, [_row(run, aware, heads) for run, aware in found], [IMAGES])


def _row(run: Run, aware: Mapping[str, Any], heads: Mapping[str, str]) -> dict[str, Any]:
    return {**by_detector(run), **{title: aware.get(name) for name, title in heads.items()}, IMAGES: images(run)}


def _ablation(found: _Found) -> list[Listing]:
    heads = {
        "daq": "DAQ ↑ (%)",
        "balanced_accuracy": "BA ↑ (%)",
        "laece": "LaECE ↓ (%)",
        "lrp": "LRP ↓ (%)",
        "laece_t": "LaECE_T ↓ (%)",
        "lrp_t": "LRP_T ↓ (%)",
    }
    rows = [
        {
            **by_detector(run),
            "v": "LRP-optimal" if row["confidence_threshold"] != "half" else "0.5",
            "LR": "✓" if row["calibrator"] == "linear" else row["calibrator"] or "✗",
            "u": METHODS.get(row["image_threshold"], str(row["image_threshold"])),
            **{title: row.get(name) for name, title in heads.items()},
            IMAGES: images(run),
        }
        for run, aware in found
        for row in aware["ablation"]
    ]
    return listing("v: confidence thresholds of detections; LR: calibration; u: threshold of images.", rows, [IMAGES])


def _image_thresholds(found: _Found) -> list[Listing]:
    rows = [
        {
            **by_detector(run),
            "Method": title,
            "BA (%)": values["balanced_accuracy"],
            "TPR (%)": values["tpr"],
            "TNR (%)": values["tnr"],
            IMAGES: images(run),
        }
        for run, aware in found
        for kind, title in METHODS.items()
        if (values := aware["image_thresholds"].get(kind))
    ]
    return listing("Thresholds chosen on ID validation images and on pseudo-OOD images.", rows, [IMAGES])


def _dummies(found: _Found) -> list[Listing]:
    rows = [
        {
            **by_detector(run),
            "Dummy det.": "none, above LRP-opt. thresholds" if row["k"] is None else f"up to {row['k']}",
            IMAGES: images(run),
            "det/img.": f"{row['detections_per_image']:.1f}",
            "LaECE ↓ (%)": row["laece"],
            "LRP ↓ (%)": row["lrp"],
        }
        for run, aware in found
        for row in aware["top_k"]
    ]
    caption = "Dummy detections of confidence 0 lower LaECE though nothing improves; LRP rises. ID validation images."
    return listing(caption, rows, ["det/img.", IMAGES])
