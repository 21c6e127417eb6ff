"""What each figure in `artifacts/metrics` says, and from what it is computed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Definition:
    """One figure.

    Args:
        name: As files call it.
        better: Which way is better: "more", "less", or "" where neither is.
        group: Where it stands in an evaluation: "ood", "open_set", "detector" (of a run on ID) or "split" (of a
            detector in a split, whatever the method).
        says: What it says, in a sentence.
        formula: How it is computed; {names} are counts that stand beside it.
        source: Where it is defined.
    """

    name: str
    better: str
    group: str
    says: str
    formula: str
    source: str


_FMIYC = "FMIYC (Find Me If You Can)"
_RANKS = "over the {id_regions} regions of the ID test split (positives) and the {ood_regions} of this split"

DEFINITIONS: dict[str, Definition] = {
    definition.name: definition
    for definition in (
        Definition(
            "auroc",
            "more",
            "ood",
            "How often an ID region scores higher than a region in an OOD image; says nothing of ground truth boxes.",
            f"area under the ROC curve {_RANKS}; ties count one half",
            f"{_FMIYC}, Appendix D",
        ),
        Definition(
            "fpr95",
            "less",
            "ood",
            "Share of the regions in OOD images that pass for ID where 95% of the ID regions do.",
            f"smallest false positive rate at a true positive rate of at least 0.95, {_RANKS}",
            f"{_FMIYC}, Eqs. 1 and 2",
        ),
        Definition(
            "aupr_in", "more", "ood", "Average precision with ID as what is sought.", f"steps {_RANKS}", "usual"
        ),
        Definition(
            "aupr_out", "more", "ood", "Average precision with OOD as what is sought.", f"steps {_RANKS}", "usual"
        ),
        Definition(
            "detection_error",
            "less",
            "ood",
            "The smallest mean of both kinds of error that any threshold reaches.",
            f"min over thresholds of ½ (1 − TPR) + ½ FPR, {_RANKS}",
            "usual",
        ),
        Definition(
            "nose",
            "less",
            "open_set",
            "Share of the unknown objects that are taken for a known class.",
            "aose / unknown objects = {aose} / {unknown_objects}",
            f"{_FMIYC}, Eq. 9",
        ),
        Definition(
            "aose",
            "less",
            "open_set",
            "Unknown objects that are taken for a known class (protocol published-code: regions that do so).",
            "counted: {aose} of {unknown_objects} unknown objects",
            f"{_FMIYC}, Section 4.2; Miller et al., 2018",
        ),
        Definition(
            "p_u",
            "more",
            "open_set",
            "Share of the regions flagged as unknown that lie on an unknown object.",
            "tp_u / (tp_u + fp_u) = {tp_u} / ({tp_u} + {fp_u})",
            f"{_FMIYC}, Eq. 4",
        ),
        Definition(
            "r_u",
            "more",
            "open_set",
            "Share of the unknown objects that are found as unknown.",
            "tp_u / unknown objects = {tp_u} / {unknown_objects}",
            f"{_FMIYC}, Eq. 5",
        ),
        Definition(
            "ap_u",
            "more",
            "open_set",
            "Average precision of the regions flagged as unknown, at all recalls.",
            "area under the precision-recall curve of the {tp_u} true and {fp_u} false flagged regions, for "
            "{unknown_objects} unknown objects, ranked by the OOD score",
            f"{_FMIYC}, Eqs. 6 to 8",
        ),
        Definition(
            "ap_u_11",
            "more",
            "open_set",
            "The same, sampled at 11 recalls, as Pascal VOC 2007 does.",
            "mean of the best precision at recalls 0, 0.1 … 1 of the {tp_u} true and {fp_u} false flagged regions, for "
            "{unknown_objects} unknown objects",
            "Everingham et al., 2010",
        ),
        Definition("tp_u", "more", "open_set", "Unknown objects found as unknown.", "counted", f"{_FMIYC}, Sec. 4.2"),
        Definition(
            "fp_u", "less", "open_set", "Flagged regions on no unknown object.", "counted", f"{_FMIYC}, Sec. 4.2"
        ),
        Definition(
            "fn_missed", "less", "open_set", "Unknown objects without any region.", "counted", f"{_FMIYC}, Sec. 4.2"
        ),
        Definition(
            "fn_misclassified",
            "less",
            "open_set",
            "Unknown objects under a region that was kept as known.",
            "counted",
            f"{_FMIYC}, Sec. 4.2",
        ),
        Definition(
            "unknown_objects",
            "",
            "open_set",
            "Labelled objects of the split that are to be found; crowds and difficult ones are not.",
            "counted; = tp_u + fn_missed + fn_misclassified = {tp_u} + {fn_missed} + {fn_misclassified}",
            f"{_FMIYC}, Sec. 4.2",
        ),
        Definition(
            "map",
            "more",
            "detector",
            "How well the detector finds the known classes in the ID test split.",
            "mean over classes and over IoU 0.50, 0.55 … 0.95 of the average precision at 101 recalls",
            "COCO",
        ),
        Definition(
            "map50",
            "more",
            "detector",
            "The same at IoU 0.5 alone.",
            "mean over classes of the average precision at 101 recalls, at IoU 0.5",
            "COCO",
        ),
        Definition(
            "threshold",
            "",
            "detector",
            "The operating threshold t*: detections with a lower confidence count as not made.",
            "chosen by rule {threshold_rule}",
            f"{_FMIYC}, Section 5",
        ),
        Definition(
            "no_detection",
            "",
            "split",
            "Share of the split's images without any detection at t*.",
            "1 − images with a detection / {images} images",
            f"{_FMIYC}, Table 1",
        ),
    )
}
