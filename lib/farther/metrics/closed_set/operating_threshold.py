"""The operating threshold t*: regions with a lower confidence of the detector are discarded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from farther.errors import DataError, ParameterError, shorten
from farther.metrics.closed_set import COCO_IOUS, ClosedSet, mismatch
from farther.metrics.closed_set.matched_detections import MatchedDetections
from farther.metrics.matching.boxes import is_among
from farther.metrics.precision_recall import TRUE
from farther.metrics.weighting import defined
from farther.tables import Images, Objects, Regions
from farther.tables.annotations import why_ignored

Rule = Literal["best_f1", "best_map"] | float

#: The rule of classifiers: their only region of an image, the whole image, is never discarded.
WHOLE_IMAGES = "whole images"


def choose(
    objects: Objects,
    regions: Regions,
    rule: Rule = "best_f1",
    tolerance: float = 0.0,
    images: Images | None = None,
) -> dict[str, Any]:
    """Chooses t* on ID data.

    Args:
        objects: Ground truth of ID images.
        regions: Detections in them, stored at a low threshold.
        rule: "best_f1": for each class the confidence with the best F1 at IoU 0.5, then the mean
            over the classes (as the code behind VOS's checkpoints does). "best_map": the one
            confidence that maximises mAP over IoU 0.50 … 0.95 (FMIYC, Section 5); see below. A
            number from 0 to 1: that number. For a classifier of whole images the threshold is 0
            whatever the rule, and the rule reported is "whole images".
        tolerance: For "best_map": fraction of mAP that may be lost.
        images: The images, whose sizes tell more about boxes that fit no object.

    Returns:
        threshold, rule, map (of the detections from t* on), and per_class {class: {"threshold" (the
        one with the best F1), "f1" (there), "precision", "recall" (both at t*)}}, all at IoU 0.5;
        None where a class has no object.

    A detection with a low confidence is at the end of the ranking, where it can add to average
    precision but never lower it; so mAP is largest with no threshold at all. "best_map" therefore
    is the *largest* threshold whose mAP is at most `tolerance` below that: what it cuts off adds
    nothing to mAP.

    Raises:
        DataError: there is no object or no detection of any known class, or none of these matches:
            then names whether images, boxes or classes do not fit.
        ParameterError: the rule is unknown, or a number is not between 0 and 1.

    >>> from farther.tables import Images, Objects, Regions
    >>> objects = Objects(image_id=["a"], object_id=[0], box=[[0, 0, 10, 10]], category=["cat"])
    >>> regions = Regions(
    ...     image_id=["a", "a"],
    ...     region_id=[0, 1],
    ...     box=[[0, 0, 10, 10], [50, 0, 60, 10]],
    ...     score=[0.75, 0.25],
    ...     label=[0, 0],
    ...     logits=[[1.0], [1.0]],
    ...     classes=("cat",),
    ... )
    >>> choose(objects, regions, "best_f1")["threshold"]
    0.75
    """
    known = ClosedSet.of(objects, regions)
    matched = known.match(COCO_IOUS)
    per_class = {name: _best_f1(matched, k) for k, name in enumerate(known.classes)}
    used_rule: str | float = rule
    if regions.header.whole_images:
        threshold = 0.0
        used_rule = WHOLE_IMAGES
    elif isinstance(rule, (int, float)) and not isinstance(rule, bool):
        if not 0 <= rule <= 1:
            raise ParameterError(
                f"operating threshold: expected a number from 0 to 1, found {rule}"
            )
        threshold = float(rule)
    elif rule == "best_f1":
        _refuse_without_matches(objects, regions, matched, images)
        best_by_class = defined([best["threshold"] for best in per_class.values()])
        threshold = float(best_by_class[~np.isnan(best_by_class)].mean())
    elif rule == "best_map":
        _refuse_without_matches(objects, regions, matched, images)
        threshold = _largest_harmless(matched, tolerance)
    else:
        raise ParameterError(
            f"operating threshold: unknown rule {rule!r}. Known: best_f1, best_map, or a number"
        )

    kept = matched.above(threshold)
    for k, name in enumerate(known.classes):
        per_class[name] |= _last_point(kept, k)
    mean_ap = None
    if matched.positives.any():
        mean_ap = float(np.nanmean(kept.average_precision()))
    return {"threshold": threshold, "rule": used_rule, "map": mean_ap, "per_class": per_class}


def _refuse_without_matches(
    objects: Objects, regions: Regions, matched: MatchedDetections, images: Images | None
) -> None:
    """Refuses detections of which none is true at IoU 0.5.

    Args:
        objects, regions, images: See `choose`.
        matched: The detections of known classes, matched at IoU 0.5 first.

    Raises:
        DataError: no detection is true; says why.
    """
    labelled = objects[~objects.is_unlabelled]
    if not len(labelled):
        raise DataError(
            "no operating threshold can be chosen without objects; give a number instead"
        )
    if not matched.positives.any():
        problem = _why_none_counts(labelled, regions.header.known_classes)
        raise DataError(f"no operating threshold can be chosen: {problem}")
    if not len(matched.score):
        problem = f"{int(matched.positives.sum())} objects, but no detection of a known class"
        lowest = f"those with a confidence below {regions.header.score_threshold:g} were not stored"
        raise DataError(f"no operating threshold can be chosen from {problem}; {lowest}")
    if not (matched.kind[0] == TRUE).any():
        raise DataError(
            f"no operating threshold can be chosen: {mismatch.explain(objects, regions, images)}"
        )


def _why_none_counts(objects: Objects, known_classes: Sequence[str]) -> str:
    """Why no object counts: none is of a known class, or all that are do not count."""
    known = objects[is_among(objects.category, known_classes)]
    reason = why_ignored(known.is_crowd, known.is_difficult)
    if reason:
        return (
            f"all {len(known)} objects of classes of the detector are {reason}, which metrics "
            "ignore; correct these flags in the annotations if they are single objects, or give "
            "the threshold as a number"
        )
    names = ", ".join(map(shorten, known_classes[:3]))
    labelled = ", ".join(map(shorten, sorted(set(objects.category))[:3]))
    return f"no object is of a class of the detector ({names}, …); objects are of {labelled}"


def _best_f1(matched: MatchedDetections, k: int) -> dict[str, float | None]:
    """Confidence with the best F1 of class k at IoU 0.5; of equal ones the largest."""
    if not matched.positives[k]:
        return {"threshold": None, "f1": None}
    curve = matched.curve(0, k)
    scores = matched.scores(0, k)
    total = curve.precision + curve.recall
    product = 2 * curve.precision * curve.recall
    f1 = np.divide(product, total, out=np.zeros_like(total), where=total > 0)
    # A threshold keeps all detections of equal confidence: only the last of them is a point that a
    # threshold reaches.
    f1[:-1][scores[:-1] == scores[1:]] = 0
    if not f1.any():
        return {"threshold": None, "f1": 0.0}
    best = int(np.argmax(f1))
    return {"threshold": float(scores[best]), "f1": float(f1[best])}


def _largest_harmless(matched: MatchedDetections, tolerance: float) -> float:
    """The largest confidence that cuts off at most `tolerance` of mAP.

    mAP only falls as the confidence rises, so bisection finds it.
    """
    levels = np.unique(matched.score)
    # Sums of the same numbers in another order may differ in the last digits.
    smallest_map = np.nanmean(matched.average_precision()) - tolerance - 1e-12
    low = 0
    high = len(levels)
    while high - low > 1:
        middle = (low + high) // 2
        mean_ap = np.nanmean(matched.above(levels[middle]).average_precision())
        if mean_ap >= smallest_map:
            low = middle
        else:
            high = middle
    return float(levels[low])


def _last_point(matched: MatchedDetections, k: int) -> dict[str, float | None]:
    """Precision and recall of all detections of class k at IoU 0.5."""
    if not matched.positives[k]:
        return {"precision": None, "recall": None}
    curve = matched.curve(0, k)
    if not len(curve.recall):
        return {"precision": None, "recall": 0.0}
    return {"precision": float(curve.precision[-1]), "recall": float(curve.recall[-1])}
