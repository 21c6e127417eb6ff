"""Calibration errors of detections: how far confidence is from performance.

`d_ece` holds confidence against precision; `laece_0` and `laace_0`, successors of SAOD's LaECE
(`farther.metrics.self_awareness`), against the overlap with the object, whatever it is.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from farther.metrics.self_awareness import BINS
from farther.metrics.self_awareness.images import ANY_OVERLAP
from farther.metrics.self_awareness.matches import MatchesByClass, match
from farther.metrics.weighting import defined, mean_of_defined, value
from farther.tables import Objects, Regions
from farther.tables.arguments import instance, whole_number

#: Smallest IoU of a true positive of D-ECE, and its bins.
PRECISION_IOU, D_ECE_BINS = 0.5, 20


def evaluate(
    objects: Objects, regions: Regions, classes: Sequence[str] | None = None
) -> dict[str, float | None]:
    """LaECE₀, LaACE₀ and D-ECE.

    Args:
        objects: Ground truth of ID images.
        regions: Detections in them, at or above the threshold.
        classes: Names of the known classes; those of `regions` when None.

    Returns:
        laece_0, laace_0 and d_ece: 0, the best, to 1; None where there is no detection.

    Raises:
        DataError: no classes are given, or a name is repeated.

    >>> from farther.tables import Objects, Regions
    >>> objects = Objects(image_id=["a"], object_id=[0], box=[[0, 0, 10, 10]], category=["cat"])
    >>> regions = Regions(
    ...     image_id=["a", "a"],
    ...     region_id=[0, 1],
    ...     box=[[0, 0, 10, 5], [50, 50, 60, 60]],
    ...     score=[0.75, 0.25],
    ...     label=[0, 0],
    ...     logits=[[1.0], [0.5]],
    ...     classes=("cat",),
    ... )
    >>> evaluate(objects, regions)["laece_0"]  # IoUs of 0.5 and 0: the gaps are 0.25
    0.25
    """
    anywhere = match(objects, regions, classes, ANY_OVERLAP)
    at_half = match(objects, regions, classes, PRECISION_IOU)
    return of_matched(anywhere, at_half)


def of_matched(anywhere: MatchesByClass, at_half: MatchesByClass) -> dict[str, float | None]:
    """As `evaluate`, of matched detections.

    Args:
        anywhere, at_half: Matched at `ANY_OVERLAP` and at `PRECISION_IOU`
            (`farther.metrics.self_awareness.matches`).
    """
    instance(anywhere, MatchesByClass, "anywhere")
    instance(at_half, MatchesByClass, "at_half")
    return {"laece_0": laece_0(anywhere), "laace_0": laace_0(anywhere), "d_ece": d_ece(at_half)}


def laece_0(matched: MatchesByClass, bins: int = BINS) -> float | None:
    """LaECE₀: mean gap between confidence and IoU over confidence bins, averaged over classes.

    Args:
        matched: Detections matched at any overlap, so precision × IoU of a bin is its mean IoU, 0
            for unmatched ones.
        bins: Number of equally wide bins; the last one is closed at 1.

    References:
        Kuzucu et al., On Calibration of Object Detectors: Pitfalls, Evaluation and Baselines, ECCV
        2024, Section 5, arXiv:2405.20459.
    """
    instance(matched, MatchesByClass, "matched")
    bins = whole_number(bins, "bins", at_least=1)
    gaps = [
        _binned_gap(detections.score, detections.quality, bins) for detections in matched.values()
    ]
    return _mean_over_classes(gaps)


def laace_0(matched: MatchesByClass) -> float | None:
    """LaACE₀: mean of |confidence − IoU| over the detections of a class, averaged over classes.

    Args:
        matched: Detections matched at any overlap.

    References:
        As of `laece_0`.
    """
    instance(matched, MatchesByClass, "matched")
    gaps = []
    for detections in matched.values():
        if len(detections.score):
            gap = np.abs(detections.score - detections.quality)
            gaps.append(float(gap.mean()))
    return _mean_over_classes(gaps)


def d_ece(matched: MatchesByClass, bins: int = D_ECE_BINS) -> float | None:
    """D-ECE: mean gap between confidence and precision over confidence bins, all classes together.

    Args:
        matched: Detections, true positives those that matched.
        bins: Number of equally wide bins.

    References:
        Küppers et al., Multivariate Confidence Calibration for Object Detection, CVPR Workshops
        2020, Eq. 5 with the confidence as the only variable, arXiv:2004.13546.
    """
    instance(matched, MatchesByClass, "matched")
    bins = whole_number(bins, "bins", at_least=1)
    if not matched:
        return None
    score = np.concatenate([detections.score for detections in matched.values()])
    is_true = np.concatenate([detections.is_true for detections in matched.values()])
    return _binned_gap(score, is_true.astype(np.float64), bins)


def _binned_gap(score: np.ndarray, target: np.ndarray, bins: int) -> float | None:
    """Gap between the sums of scores and targets in each bin, over all detections.

    Args:
        score: Confidences, ndarray of shape (n,).
        target: Values that they are compared with, ndarray of shape (n,).
        bins: Number of equally wide bins.

    Returns:
        None without any detection.
    """
    if not len(score):
        return None
    edges = np.linspace(0, 1, bins + 1)
    bin_index = np.minimum(np.searchsorted(edges, score, side="right") - 1, bins - 1)
    score_sums = np.bincount(bin_index, score, minlength=bins)
    target_sums = np.bincount(bin_index, target, minlength=bins)
    return float(np.abs(score_sums - target_sums).sum() / len(score))


def _mean_over_classes(values: Sequence[float | None]) -> float | None:
    """Mean over the classes that have detections."""
    return value(mean_of_defined(defined(values)))
