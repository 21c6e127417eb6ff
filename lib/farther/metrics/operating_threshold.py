"""The operating threshold t*: the detector's confidence from which on a detection counts as made."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from farther.errors import DataError, ParameterError
from farther.metrics.closed_set import COCO_IOUS, Labelled, Verdicts
from farther.tables import Objects, Regions

Rule = Literal["best_f1", "best_map"] | float


def choose(objects: Objects, regions: Regions, rule: Rule = "best_f1", tolerance: float = 0.0) -> dict[str, Any]:
    """Chooses t* on ID data.

    Args:
        objects: Ground truth of ID images.
        regions: Detections in them, stored at a low threshold.
        rule: "best_f1": for each class the confidence with the best F1 at IoU 0.5, then the mean over the classes
            (what the code behind VOS's checkpoints does). "best_map": the one confidence that maximises mAP over IoU
            0.50 … 0.95 (FMIYC, Section 5); see below. A number from 0 to 1: that number.
        tolerance: For "best_map": how much mAP, as a fraction, may be lost.

    Returns:
        threshold, rule, map (of the detections from t* on), and per_class {class: {"threshold" (the one with the
        best F1), "f1" (there), "precision", "recall" (both at t*)}}, all at IoU 0.5; None where a class has no object.

    A detection with a low confidence stands at the end of its ranking, where it can add to average precision but never
    take from it; so mAP is largest with no threshold at all. "best_map" therefore is the *largest* threshold whose
    mAP is at most `tolerance` below that: everything it cuts off is of no use to mAP.

    Raises:
        DataError: there is no object or no detection of any known class, so no threshold can be chosen.
        ParameterError: the rule is unknown, or a number is not between 0 and 1.
    """
    known = Labelled(objects, regions)
    verdicts = known.verdicts(COCO_IOUS)
    per_class = {name: _best_f1(verdicts, k) for k, name in enumerate(known.classes)}
    if isinstance(rule, (int, float)) and not isinstance(rule, bool):
        if not 0 <= rule <= 1:
            raise ParameterError(f"operating threshold: a number is from 0 to 1, found {rule}")
        threshold = float(rule)
    elif rule in ("best_f1", "best_map"):
        if not verdicts.positives.any() or not len(verdicts.score):
            problem = f"{int(verdicts.positives.sum())} objects and {len(verdicts.score)} detections of known classes"
            raise DataError(f"no operating threshold can be chosen from {problem}; give a number instead")
        threshold = _mean_threshold(per_class) if rule == "best_f1" else _largest_harmless(verdicts, tolerance)
    else:
        raise ParameterError(f"operating threshold: unknown rule {rule!r}. Known: best_f1, best_map, or a number")
    kept = verdicts.above(threshold)
    for k, name in enumerate(known.classes):
        per_class[name] |= _last_point(kept, k)
    has_objects = bool(verdicts.positives.any())
    reached = float(np.nanmean(kept.average_precision())) if has_objects else None
    return {"threshold": threshold, "rule": rule, "map": reached, "per_class": per_class}


def _best_f1(verdicts: Verdicts, k: int) -> dict[str, float | None]:
    """Confidence with the best F1 of class k at IoU 0.5; of equal ones the largest."""
    if not verdicts.positives[k]:
        return {"threshold": None, "f1": None}
    curve, scores = verdicts.curve(0, k), verdicts.scores(0, k)
    total = curve.precision + curve.recall
    f1 = np.divide(2 * curve.precision * curve.recall, total, out=np.zeros_like(total), where=total > 0)
    # A threshold keeps all detections of equal confidence: only the last of them is a point that can be had.
    f1[:-1][scores[:-1] == scores[1:]] = 0
    if not f1.any():
        return {"threshold": None, "f1": 0.0}
    best = int(np.argmax(f1))
    return {"threshold": float(scores[best]), "f1": float(f1[best])}


def _mean_threshold(per_class: dict[str, dict[str, float | None]]) -> float:
    thresholds = [c["threshold"] for c in per_class.values() if c["threshold"] is not None]
    if not thresholds:
        raise DataError("no detection of any class matches an object at IoU 0.5; give a number as operating threshold")
    return float(np.mean(np.array(thresholds, dtype=np.float64)))


def _largest_harmless(verdicts: Verdicts, tolerance: float) -> float:
    """The largest confidence that cuts off at most `tolerance` of mAP; mAP only falls as it rises: bisection."""
    levels = np.unique(verdicts.score)
    # Sums of the same numbers in another order may differ in the last digits.
    least = np.nanmean(verdicts.average_precision()) - tolerance - 1e-12
    low, high = 0, len(levels)
    while high - low > 1:
        middle = (low + high) // 2
        enough = np.nanmean(verdicts.above(levels[middle]).average_precision()) >= least
        low, high = (middle, high) if enough else (low, middle)
    return float(levels[low])


def _last_point(verdicts: Verdicts, k: int) -> dict[str, float | None]:
    if not verdicts.positives[k]:
        return {"precision": None, "recall": None}
    curve = verdicts.curve(0, k)
    if not len(curve.recall):
        return {"precision": None, "recall": 0.0}
    return {"precision": float(curve.precision[-1]), "recall": float(curve.recall[-1])}
