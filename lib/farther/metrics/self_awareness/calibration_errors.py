"""Calibration errors of detections: how far confidence is from performance.

`d_ece` holds confidence against precision; `laece_0` and `laace_0`, successors of SAOD's LaECE
(`farther.metrics.self_awareness`), against the overlap with the object, whatever it is.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from farther.errors import ParameterError
from farther.metrics.self_awareness import BINS
from farther.metrics.self_awareness.images import ANY_OVERLAP
from farther.metrics.self_awareness.matches import Matched, match
from farther.metrics.weighting import defined, mean_of_defined, value
from farther.tables import Objects, Regions

#: Smallest IoU of a true positive of D-ECE, and its bins.
PRECISION_IOU, D_ECE_BINS = 0.5, 20


def laece_0(objects: Objects, regions: Regions, classes: Sequence[str] | None = None, bins: int = BINS) -> float | None:
    """LaECE₀: mean gap between confidence and IoU over confidence bins, averaged over classes.

    Detections are matched at any overlap, so precision × IoU of a bin is its mean IoU, 0 for unmatched detections.

    Args:
        objects: Ground truth of ID images.
        regions: Detections in them.
        classes: Names of the known classes; those of `regions` when None.
        bins: Number of equally wide bins; the last one is closed at 1.

    Returns:
        0, the best, to 1; None where no class has a detection.

    Raises:
        DataError: no classes are given, or a name is repeated.
        ParameterError: `bins` is below 1.

    References:
        Kuzucu et al., On Calibration of Object Detectors: Pitfalls, Evaluation and Baselines, ECCV 2024, Section 5,
        arXiv:2405.20459.

    >>> from farther.tables import Objects, Regions
    >>> objects = Objects(image_id=["a"], object_id=[0], box=[[0, 0, 10, 10]], category=["cat"])
    >>> regions = Regions(image_id=["a", "a"], region_id=[0, 1], box=[[0, 0, 10, 5], [50, 50, 60, 60]],
    ...                   score=[0.75, 0.25], label=[0, 0], logits=[[1.0], [0.5]], classes=("cat",))
    >>> laece_0(objects, regions)  # half of the detections has IoU 0.5, the other has none: the gaps are 0.25
    0.25
    """
    return _laece_0(match(objects, regions, classes, ANY_OVERLAP), bins)


def laace_0(objects: Objects, regions: Regions, classes: Sequence[str] | None = None) -> float | None:
    """LaACE₀: mean of |confidence − IoU| over the detections of a class, averaged over classes.

    Args:
        objects: Ground truth of ID images.
        regions: Detections in them.
        classes: Names of the known classes; those of `regions` when None.

    Returns:
        0, the best, to 1; None where no class has a detection.

    Raises:
        DataError: no classes are given, or a name is repeated.

    References:
        Kuzucu et al., On Calibration of Object Detectors: Pitfalls, Evaluation and Baselines, ECCV 2024, Section 5,
        arXiv:2405.20459.
    """
    return _laace_0(match(objects, regions, classes, ANY_OVERLAP))


def d_ece(
    objects: Objects,
    regions: Regions,
    classes: Sequence[str] | None = None,
    iou: float = PRECISION_IOU,
    bins: int = D_ECE_BINS,
) -> float | None:
    """D-ECE: mean gap between confidence and precision over confidence bins, all classes together.

    Args:
        objects, regions, classes, bins: As in `laece_0`.
        iou: Smallest IoU of a true positive.

    Returns:
        0, the best, to 1; None without detections.

    Raises:
        DataError: no classes are given, or a name is repeated.
        ParameterError: `bins` is below 1, or the IoU is not above 0 and below 1.

    References:
        Küppers et al., Multivariate Confidence Calibration for Object Detection, CVPR Workshops 2020, Eq. 5 with the
        confidence as the only variable, arXiv:2004.13546.
    """
    return _d_ece(match(objects, regions, classes, iou), bins)


def evaluate(objects: Objects, regions: Regions, classes: Sequence[str] | None = None) -> dict[str, float | None]:
    """The three errors of the module, by name.

    Args:
        objects: Ground truth.
        regions: Detections in the same images, at or above the threshold.
        classes: Names of the known classes; those of `regions` when None.

    Returns:
        laece_0, laace_0 and d_ece, as fractions; None where there is no detection.
    """
    return of_matched(*(match(objects, regions, classes, iou) for iou in (ANY_OVERLAP, PRECISION_IOU)))


def of_matched(anywhere: Matched, at_half: Matched) -> dict[str, float | None]:
    """As `evaluate`, of matched detections.

    Args:
        anywhere, at_half: Matched at `ANY_OVERLAP` and at `PRECISION_IOU` (`farther.metrics.self_awareness.matches`).
    """
    return {"laece_0": _laece_0(anywhere), "laace_0": _laace_0(anywhere), "d_ece": _d_ece(at_half)}


def _laece_0(matched: Matched, bins: int = BINS) -> float | None:
    return _mean([_binned_gap(one.score, one.quality, bins) if len(one.score) else None for one in matched.values()])


def _laace_0(matched: Matched) -> float | None:
    of_classes = matched.values()
    return _mean([float(np.abs(one.score - one.quality).mean()) if len(one.score) else None for one in of_classes])


def _d_ece(matched: Matched, bins: int = D_ECE_BINS) -> float | None:
    of_classes = list(matched.values())
    score, is_true = (np.concatenate([getattr(one, part) for one in of_classes]) for part in ("score", "is_true"))
    return _binned_gap(score, is_true.astype(np.float64), bins) if len(score) else None


def _binned_gap(score: np.ndarray, target: np.ndarray, bins: int) -> float:
    if bins < 1:
        raise ParameterError(f"at least one bin is needed, found bins={bins}")
    place = np.minimum(np.searchsorted(np.linspace(0, 1, bins + 1), score, side="right") - 1, bins - 1)
    gaps = np.bincount(place, score, minlength=bins) - np.bincount(place, target, minlength=bins)
    return float(np.abs(gaps).sum() / len(score))


def _mean(values: list[float | None]) -> float | None:
    return value(mean_of_defined(defined(values)))
