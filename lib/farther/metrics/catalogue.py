"""Every metric once: its name, title, LaTeX symbol, direction, meaning, formula and source.

Tables, charts, intervals, `farther explain` and `farther compare` read this catalogue.

>>> METRICS["nose"].title, METRICS["nose"].higher_is_better, METRICS["nose"].arrow
('nOSE', False, '↓')
>>> METRICS["ap_u"].best([0.2, None, 0.4])
0.4
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

Group = Literal["ood", "ood_per_image", "open_set", "known", "detector", "split"]

FMIYC = "Montoya et al., 2025 (FMIYC), arXiv:2506.14008"
_COCO = "Lin et al., 2014, arXiv:1405.0312; as pycocotools computes it"
_ODIN = "Liang et al., 2018, arXiv:1706.02690"
_MSP = "Hendrycks and Gimpel, 2017, arXiv:1610.02136"
_ORE = "Joseph et al., 2021, arXiv:2103.02603"
_OVER = "over the {id_regions} regions of the ID test split (positives) and the {ood_regions} of this split"


@dataclass(frozen=True)
class Metric:
    """One metric.

    Args:
        name: Its key in metrics files, intervals and comparisons.
        title: Its name in tables and charts.
        latex: Its symbol in LaTeX.
        higher_is_better: None where neither direction is better.
        group: The section of an evaluation that holds it: "ood", "ood_per_image", "open_set" and "known" of a method on
            a split; "detector" of a run on the ID split; "split" of a detector on a split, whatever the method.
        meaning: One sentence.
        formula: How it is computed; {names} are counts stored beside the value.
        source: The publication that defines it.
    """

    name: str
    title: str
    latex: str
    higher_is_better: bool | None
    group: Group
    meaning: str
    formula: str
    source: str

    @property
    def key(self) -> str:
        """Its key within the section `group` of an evaluation."""
        return self.name.removeprefix("per_image_").removeprefix("known_")

    @property
    def arrow(self) -> str:
        """↑ where higher is better, ↓ where lower is, "" where neither is."""
        return {True: "↑", False: "↓", None: ""}[self.higher_is_better]

    @property
    def latex_header(self) -> str:
        """Symbol and arrow for the header of a LaTeX table."""
        return self.latex + {True: r"$\uparrow$", False: r"$\downarrow$", None: ""}[self.higher_is_better]

    def best(self, values: Sequence[float | None]) -> float | None:
        """The best of some values; None where there is none."""
        defined = [value for value in values if value is not None]
        return (min if self.higher_is_better is False else max)(defined) if defined else None

    def of(self, results: Mapping[str, Any]) -> float | None:
        """Its value among the results of a method on a split (`evaluation/<run>.json`); None where there is none."""
        value: float | None = results.get(self.group, {}).get(self.key)
        return value


_OOD = (
    Metric(
        "auroc",
        "AUROC",
        "AUROC",
        True,
        "ood",
        "How well the score separates detections in ID images from detections in OOD images; 0.5 is chance.",
        f"area under the ROC curve {_OVER}; equal scores count one half",
        f"{_MSP}; {FMIYC}, Appendix D",
    ),
    Metric(
        "fpr95",
        "FPR95",
        "FPR95",
        False,
        "ood",
        "Share of detections in OOD images that pass as in-distribution when 95% of those in ID images do.",
        f"smallest false positive rate at a true positive rate of at least 0.95, {_OVER}",
        f"{_ODIN}; {FMIYC}, Eqs. 1 and 2",
    ),
    Metric(
        "aupr_in",
        "AUPR-In",
        "AUPR$_{in}$",
        True,
        "ood",
        "Average precision with ID as the positive class.",
        f"Σ (R_k − R_{{{{k−1}}}}) P_k, one step per different score, {_OVER}",
        _MSP,
    ),
    Metric(
        "aupr_out",
        "AUPR-Out",
        "AUPR$_{out}$",
        True,
        "ood",
        "Average precision with OOD as the positive class.",
        f"Σ (R_k − R_{{{{k−1}}}}) P_k, one step per different score, {_OVER}, with OOD as positives",
        _MSP,
    ),
    Metric(
        "detection_error",
        "Detection error",
        "Detection error",
        False,
        "ood",
        "The smallest mean of both error rates that any threshold reaches.",
        f"min over thresholds of ½ (1 − TPR) + ½ FPR, {_OVER}",
        _ODIN,
    ),
)

_OPEN_SET = (
    Metric(
        "nose",
        "nOSE",
        "nOSE",
        False,
        "open_set",
        "Share of unknown objects that are misclassified: detected as a known class.",
        "aose / unknown objects = {aose} / {unknown_objects}",
        f"{FMIYC}, Eq. 9",
    ),
    Metric(
        "aose",
        "AOSE",
        "AOSE",
        False,
        "open_set",
        "Unknown objects that are misclassified (protocol published-code: regions that misclassify one).",
        "counted: {aose} of {unknown_objects} unknown objects",
        f"Miller et al., 2018, arXiv:1710.06677; {FMIYC}, Section 4.2",
    ),
    Metric(
        "p_u",
        "P_U",
        "$P_U$",
        True,
        "open_set",
        "Share of the detections flagged as unknown that lie on a labelled unknown object.",
        "tp_u / (tp_u + fp_u) = {tp_u} / ({tp_u} + {fp_u})",
        f"{FMIYC}, Eq. 4",
    ),
    Metric(
        "r_u",
        "R_U",
        "$R_U$",
        True,
        "open_set",
        "Share of unknown objects that are found: detected and flagged as unknown.",
        "tp_u / unknown objects = {tp_u} / {unknown_objects}",
        f"{FMIYC}, Eq. 5",
    ),
    Metric(
        "ap_u",
        "AP_U",
        "$AP_U$",
        True,
        "open_set",
        "Area under the precision–recall curve of finding unknown objects.",
        "area under the interpolated precision–recall curve of the {tp_u} true and {fp_u} false flagged detections for "
        "{unknown_objects} unknown objects, ranked by the OOD score",
        f"{FMIYC}, Eqs. 6 to 8",
    ),
    Metric(
        "ap_u_11",
        "AP_U (11 points)",
        "$AP_U^{11}$",
        True,
        "open_set",
        "The same, sampled at 11 recalls as in Pascal VOC 2007.",
        "mean of the interpolated precision at recalls 0, 0.1 … 1 of the {tp_u} true and {fp_u} false flagged "
        "detections, for {unknown_objects} unknown objects",
        "Everingham et al., 2010, doi:10.1007/s11263-009-0275-4",
    ),
    Metric(
        "tp_u",
        "Found",
        "$TP_U$",
        True,
        "open_set",
        "Unknown objects that are found.",
        "counted",
        f"{FMIYC}, Section 4.2",
    ),
    Metric(
        "fp_u",
        "False unknowns",
        "$FP_U$",
        False,
        "open_set",
        "Detections flagged as unknown that match no unknown object.",
        "counted",
        f"{FMIYC}, Section 4.2",
    ),
    Metric(
        "fn_missed",
        "Missed",
        "$FN^D_U$",
        False,
        "open_set",
        "Unknown objects that no detection matches (FN^D, dismissed, in the paper).",
        "counted",
        f"{FMIYC}, Section 4.2",
    ),
    Metric(
        "fn_misclassified",
        "Misclassified",
        "$FN^M_U$",
        False,
        "open_set",
        "Unknown objects that are misclassified.",
        "counted",
        f"{FMIYC}, Section 4.2",
    ),
    Metric(
        "unknown_objects",
        "Unknown objects",
        "$N_U$",
        None,
        "open_set",
        "Labelled unknown objects of the split, without crowds and difficult ones.",
        "tp_u + fn_missed + fn_misclassified = {tp_u} + {fn_missed} + {fn_misclassified}",
        f"{FMIYC}, Section 4.2",
    ),
)

_KNOWN = (
    Metric(
        "known_ap_k",
        "AP_K",
        "$AP_K$",
        True,
        "known",
        "Mean average precision of the known classes, from the detections that are kept as known.",
        "mean over known classes with objects of the area under the interpolated precision–recall curve",
        _ORE,
    ),
    Metric(
        "known_p_k",
        "P_K",
        "$P_K$",
        True,
        "known",
        "Mean precision of the known classes.",
        "mean over known classes with objects and detections of TP / (TP + FP)",
        _ORE,
    ),
    Metric(
        "known_r_k",
        "R_K",
        "$R_K$",
        True,
        "known",
        "Mean recall of the known classes.",
        "mean over known classes with objects of TP / objects",
        _ORE,
    ),
    Metric(
        "known_map",
        "mAP (known and unknown)",
        "mAP$_{K+U}$",
        True,
        "known",
        "Mean average precision over the known classes and the class unknown.",
        "mean of the average precisions of the known classes and AP_U",
        _ORE,
    ),
    Metric(
        "known_wi",
        "WI",
        "WI",
        False,
        "known",
        "Wilderness impact: detections on unknown objects for each other detection.",
        "FP_o / (TP_c + FP_c) at a recall of 0.8 of each known class",
        f"Dhamija et al., 2020, doi:10.1109/WACV45572.2020.9093355; {_ORE}",
    ),
)

_DETECTOR = (
    Metric(
        "map",
        "mAP",
        "mAP",
        True,
        "detector",
        "How well the detector finds the known classes in the ID test split.",
        "mean over classes and over IoU 0.50, 0.55 … 0.95 of the average precision at 101 recalls",
        _COCO,
    ),
    Metric(
        "map50",
        "mAP50",
        "mAP$_{50}$",
        True,
        "detector",
        "The same at IoU 0.5 alone.",
        "mean over classes of the average precision at 101 recalls, at IoU 0.5",
        _COCO,
    ),
    Metric(
        "threshold",
        "t*",
        "$t^*$",
        None,
        "detector",
        "The operating threshold: regions with a lower confidence are discarded.",
        "chosen by rule {threshold_rule}",
        f"{FMIYC}, Section 5",
    ),
    Metric(
        "no_detection",
        "No detection",
        "No detection",
        None,
        "split",
        "Share of the split's images without any detection at t*.",
        "1 − images with a detection / {images} images",
        f"{FMIYC}, Table 1",
    ),
)

_PER_IMAGE = tuple(
    replace(
        metric,
        name=f"per_image_{metric.name}",
        title=f"{metric.title} per image",
        latex=f"{metric.latex} per image",
        group="ood_per_image",
        meaning=f"{metric.meaning} Of images, each with the score of its least in-distribution detection.",
        formula=metric.formula.replace(
            _OVER, "over the {id_images} images of the ID test split (positives) and the {ood_images} of this split"
        ),
    )
    for metric in _OOD
)

#: Every metric by its name.
METRICS: dict[str, Metric] = {m.name: m for m in (*_OOD, *_PER_IMAGE, *_OPEN_SET, *_KNOWN, *_DETECTOR)}

#: Metrics of a metrics file, by which methods are compared: detections wherever they lie, then unknown objects.
COMPARED = ("auroc", "fpr95", "nose", "ap_u", "p_u", "r_u")

#: Metrics of a method on a split that have a best method, with intervals of the difference to it.
RANKED = (
    *COMPARED,
    "aupr_in",
    "aupr_out",
    "detection_error",
    "ap_u_11",
    *(metric.name for metric in _PER_IMAGE),
    *(metric.name for metric in _KNOWN),
)
