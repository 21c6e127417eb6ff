"""Self-awareness: acceptance of the right images, and calibrated confidences (SAOD).

Source: Oksuz et al., Towards Building Self-Aware Object Detectors, CVPR 2023, arXiv:2307.00934.

Detections are matched as COCO does at IoU `TRUE_POSITIVE_IOU`, at most 100 per image and class;
those of crowds and difficult objects are ignored. Errors (LRP, LaECE) are from 0, the best, to 1;
qualities (IDQ, DAQ, balanced accuracy) from 0 to 1, the best.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np

from farther.errors import DataError
from farther.metrics.matching.boxes import is_among
from farther.metrics.self_awareness.matches import (
    TRUE_POSITIVE_IOU,
    ClassMatches,
    MatchesByClass,
    match,
)
from farther.metrics.weighting import ImageWeights, columns, mean_of_defined, plain, ratio, value
from farther.tables import Objects, Regions
from farther.tables.arguments import array_of, floats, instance, instances, number, one_of, texts
from farther.terms import Protocol

#: Confidence bins of LaECE, equally wide.
BINS = 25
#: Edges of the bins.
BIN_EDGES = np.linspace(0, 1, BINS + 1)

#: LRP, its parts, and LaECE.
PARTS = ("lrp", "lrp_loc", "lrp_fp", "lrp_fn", "laece")


def evaluate(
    objects: Objects,
    regions: Regions,
    *,
    classes: Sequence[str] | None = None,
    rejected: Collection[str] = (),
    may_reject: Collection[str] = (),
    iou: float = TRUE_POSITIVE_IOU,
    protocol: Protocol = "paper",
) -> dict[str, Any]:
    """Accuracy and calibration of the detections that are kept.

    Args:
        objects: Ground truth of ID images (possibly corrupted).
        regions: Detections in them, after the confidence thresholds (`lrp_thresholds`) and, if any,
            calibration.
        classes: Names of the known classes; those of `regions` when None.
        rejected: Images that the detector does not accept: their detections do not count, so their
            objects are missed.
        may_reject: Of those, images that may be rejected (severe corruption): their objects do not
            count either.
        iou: τ of Eq. 1.
        protocol: "published-code" counts the LaECE of a class without detections or without objects
            as 0, leaves classes without true positives out of the mean of LRP_FP, and has a
            confidence of exactly 1 in no bin of LaECE, as SAOD's code does; otherwise the last bin
            is closed.

    Returns:
        Fractions; None where there is nothing to average.

        lrp: Mean LRP error (Eq. 1) over the classes with objects; 1 for a class without detections.
        lrp_loc, lrp_fp, lrp_fn: Means of its parts: 1 − IoU of the true positives, 1 − precision, 1
            − recall.
        laece: Localisation-aware calibration error (Eq. 4), mean over the classes with detections.
        idq: Harmonic mean of 1 − lrp and 1 − laece.
        per_class: {class: {"lrp", "lrp_loc", "lrp_fp", "lrp_fn", "laece", "objects",
            "detections"}}.
        reliability: see `reliability`.

    Raises:
        DataError: no classes are given, or a name is repeated.
        ParameterError: the IoU is not above 0 and below 1.

    >>> from farther.tables import Objects, Regions
    >>> objects = Objects(
    ...     image_id=["a", "a"],
    ...     object_id=[0, 1],
    ...     box=[[0, 0, 9, 9], [20, 0, 29, 9]],
    ...     category=["cat", "cat"],
    ... )
    >>> regions = Regions(
    ...     image_id=["a"],
    ...     region_id=[0],
    ...     box=[[0, 0, 9, 9]],
    ...     score=[0.75],
    ...     label=[0],
    ...     logits=[[1.0]],
    ...     classes=("cat",),
    ... )
    >>> metrics = evaluate(objects, regions)  # one of two objects is found, with IoU 1
    >>> metrics["lrp"], metrics["laece"]
    (0.5, 0.25)
    """
    instance(objects, Objects, "objects")
    instance(regions, Regions, "regions")
    rejected = texts(rejected, "rejected", any_order=True).tolist()
    may_reject = texts(may_reject, "may_reject", any_order=True).tolist()
    excused = frozenset(rejected) & frozenset(may_reject)
    accepted = regions[~is_among(regions.image_id, rejected)]
    counted = objects[~is_among(objects.image_id, excused)]
    return metrics(match(counted, accepted, classes, iou), iou, protocol)


def metrics(
    matched: MatchesByClass, iou: float = TRUE_POSITIVE_IOU, protocol: Protocol = "paper"
) -> dict[str, Any]:
    """The metrics of `evaluate`, of matched detections.

    Args:
        matched: see `match`; matched at the same IoU.
        iou, protocol: see `evaluate`.
    """
    values_by_class = by_class(matched, iou, protocol)
    per_class = {}
    for name, values in values_by_class.items():
        per_class[name] = {
            **plain(values),
            "objects": matched[name].positives,
            "detections": len(matched[name].score),
        }
    return {
        **plain(means(values_by_class)),
        "per_class": per_class,
        "reliability": reliability(matched.values(), protocol),
    }


def by_class(
    matched: MatchesByClass,
    iou: float = TRUE_POSITIVE_IOU,
    protocol: Protocol = "paper",
    weights: ImageWeights | None = None,
) -> dict[str, dict[str, np.ndarray]]:
    """LRP and its parts, and LaECE, of each class.

    Args:
        matched: see `match`; matched at the same IoU.
        iou, protocol: see `evaluate`.
        weights: Of the images of `matched`, ndarray of shape (B, I), for B replicates; each counts
            once when None.

    Returns:
        {class: {one of `PARTS`: ndarray of shape (B,)}}; NaN where there is nothing to average. B
        is 1 without weights.
    """
    instance(matched, MatchesByClass, "matched")
    iou = number(iou, "iou", above=0, below=1)
    one_of(protocol, get_args(Protocol), "protocol")
    image_weights, column = columns(weights, len(matched.images))
    image_weights = image_weights.astype(np.float64)
    values_by_class = {}
    for name, detections in matched.items():
        values_by_class[name] = _of_class(detections, image_weights, column, iou, protocol)
    return values_by_class


def _of_class(
    detections: ClassMatches,
    image_weights: np.ndarray,
    column: np.ndarray,
    iou: float,
    protocol: Protocol,
) -> dict[str, np.ndarray]:
    """LRP and its parts, and LaECE, of one class: {one of `PARTS`: ndarray of shape (B,)}.

    Args:
        detections: Matched detections of the class.
        image_weights: ndarray of shape (B, C), float64.
        column: Column of each image, ndarray of shape (I,).
        iou, protocol: see `evaluate`.
    """
    if not detections.positives and not len(detections.score):
        return _of_empty_class(len(image_weights), protocol)

    def total(image: np.ndarray, values: np.ndarray | None = None) -> np.ndarray:
        per_column = np.bincount(column[image], values, minlength=image_weights.shape[1])
        return image_weights @ per_column

    is_true = detections.is_true
    true_image = detections.image[is_true]
    count = total(detections.image)
    true = total(true_image)
    localisation_error = total(true_image, 1 - detections.quality[is_true])
    positives = total(detections.object_image)
    false = count - true
    missed = positives - true
    lrp = ratio(false + missed + localisation_error / (1 - iou), false + missed + true)
    laece = _laece(detections, image_weights, column, count, protocol)

    has_objects = positives > 0
    has_precision = has_objects
    if protocol == "published-code":
        laece = np.where(has_objects, np.nan_to_num(laece), 0.0)
        has_precision = has_objects & (true > 0)
    return {
        "lrp": np.where(has_objects, lrp, np.nan),
        "lrp_loc": ratio(localisation_error, true),
        "lrp_fp": np.where(has_precision, ratio(false, count), np.nan),
        "lrp_fn": ratio(missed, positives),
        "laece": laece,
    }


def _of_empty_class(replicates: int, protocol: Protocol) -> dict[str, np.ndarray]:
    """As `_of_class`, of a class without objects and detections, as most are in a few images.

    Args:
        replicates: Number of replicates.
        protocol: see `evaluate`.
    """
    values = {part: np.full(replicates, np.nan) for part in PARTS}
    if protocol == "published-code":
        values["laece"] = np.zeros(replicates)
    return values


def _laece(
    detections: ClassMatches,
    image_weights: np.ndarray,
    column: np.ndarray,
    count: np.ndarray,
    protocol: Protocol,
) -> np.ndarray:
    """LaECE of one class, ndarray of shape (B,); NaN without detections.

    Args:
        detections, image_weights, column, protocol: see `_of_class`.
        count: Number of detections, ndarray of shape (B,).
    """
    has_bin = in_a_bin(detections.score, protocol)
    score = detections.score[has_bin]
    # Precision times the mean IoU of the true positives is the sum of their IoU over all detections
    # of the bin.
    gap = score - detections.quality[has_bin]
    gap_per_bin = np.zeros((image_weights.shape[1], BINS))
    np.add.at(gap_per_bin, (column[detections.image[has_bin]], bin_of(score)), gap)
    return ratio(np.abs(image_weights @ gap_per_bin).sum(axis=1), count)


def means(values_by_class: Mapping[str, Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Means over classes of LRP, its parts and LaECE, and IDQ.

    Args:
        values_by_class: From `by_class`.

    Returns:
        {metric: ndarray of shape (B,)}, NaN where undefined.
    """
    instance(values_by_class, Mapping, "values_by_class")
    mean_by_part = {}
    for part in PARTS:
        of_classes = np.array([values[part] for values in values_by_class.values()])
        if not values_by_class:
            of_classes = np.full((1, 1), np.nan)
        mean_by_part[part] = mean_of_defined(of_classes)
    idq = harmonic_mean(1 - mean_by_part["lrp"], 1 - mean_by_part["laece"])
    return {**mean_by_part, "idq": idq}


def lrp_thresholds(
    objects: Objects,
    regions: Regions,
    classes: Sequence[str] | None = None,
    iou: float = TRUE_POSITIVE_IOU,
) -> dict[str, float | None]:
    """Each class's confidence threshold with the smallest LRP error.

    LRP-optimal thresholding, Section 5.2.

    Args:
        objects: Ground truth.
        regions: Detections in the same images.
        classes: Names of the known classes; those of `regions` without the background when None.
        iou: Smallest overlap of a detection and its object.

    Returns:
        {class: threshold}; None for a class without objects or detections, or where no detection at
        all is best.

    Raises:
        DataError: see `evaluate`.
    """
    iou = number(iou, "iou", above=0, below=1)
    return best_thresholds(match(objects, regions, classes, iou), iou)


def best_thresholds(
    matched: MatchesByClass, iou: float = TRUE_POSITIVE_IOU
) -> dict[str, float | None]:
    """As `lrp_thresholds`, of matched detections.

    Args:
        matched: see `match`; matched at the same IoU.
        iou: see `lrp_thresholds`.
    """
    instance(matched, MatchesByClass, "matched")
    iou = number(iou, "iou", above=0, below=1)
    threshold_by_class: dict[str, float | None] = {}
    for name, detections in matched.items():
        errors = _lrp_of_prefixes(detections, iou)
        threshold_by_class[name] = None
        if detections.positives and len(errors) and errors.min() < 1:
            threshold_by_class[name] = float(detections.score[np.argmin(errors)])
    return threshold_by_class


def reliability(
    matched: Collection[ClassMatches], protocol: Protocol = "paper"
) -> dict[str, list[Any]]:
    """The reliability diagram (Fig. 4): mean confidence and performance of each confidence bin.

    Args:
        matched: Matched detections of each class.
        protocol: see `evaluate`.

    Returns:
        lower (edge of the bin), confidence and performance (precision × IoU), both means over the
        classes whose bin is not empty, None where all are; detections (their number).
    """
    one_of(protocol, get_args(Protocol), "protocol")
    matched = instances(matched, ClassMatches, "matched")
    counts = []
    confidences = []
    performances = []
    for detections in matched:
        bins = _bins(detections, protocol)
        counts.append(bins.count)
        confidences.append(bins.confidence)
        performances.append(bins.performance)

    count = np.array(counts).reshape(-1, BINS)
    confidence = np.array(confidences).reshape(-1, BINS)
    performance = np.array(performances).reshape(-1, BINS)
    mean_confidence = mean_of_defined(np.where(count > 0, confidence, np.nan))
    mean_performance = mean_of_defined(np.where(count > 0, performance, np.nan))
    return {
        "lower": [index / BINS for index in range(BINS)],
        "confidence": [value(mean) for mean in mean_confidence],
        "performance": [value(mean) for mean in mean_performance],
        "detections": count.sum(axis=0).tolist(),
    }


def balanced_accuracy(
    id_scores: np.ndarray, ood_scores: np.ndarray, threshold: float
) -> dict[str, float | None]:
    """Shares of ID images that a threshold accepts and of OOD images that it rejects.

    Args:
        id_scores, ood_scores: Scores of images, higher means more in-distribution.
        threshold: An image is accepted iff its score is at least that.

    Returns:
        tpr (share of ID images accepted), tnr (share of OOD images rejected), balanced_accuracy
        (their harmonic mean; the paper's text says FPR for the second, its Table A.12 and its code
        TNR). None where a side is empty. They are counted at the threshold; SAOD's code reads them
        off the next point of a thinned ROC.

    >>> balanced_accuracy(np.array([0.9, 0.8]), np.array([0.1, 0.85]), threshold=0.8)
    {'balanced_accuracy': 0.6666666666666666, 'tpr': 1.0, 'tnr': 0.5}
    """
    id_scores = floats(id_scores, "id_scores")
    ood_scores = floats(ood_scores, "ood_scores")
    threshold = number(threshold, "threshold", infinite=True)
    if not len(id_scores) or not len(ood_scores):
        return {"balanced_accuracy": None, "tpr": None, "tnr": None}
    tpr = float(np.mean(id_scores >= threshold))
    tnr = float(np.mean(ood_scores < threshold))
    return {"balanced_accuracy": float(harmonic_mean(tpr, tnr)), "tpr": tpr, "tnr": tnr}


def harmonic_mean(*values: Any) -> Any:
    """Harmonic mean of numbers of 0 or more: 0 where one of them is, NaN where one is NaN.

    DAQ is that of the balanced accuracy and of IDQ on clean and on corrupted ID images (Section 6).

    Args:
        *values: Fractions, or ndarrays of shapes that can be broadcast, whose means are taken
            element by element.

    >>> round(float(harmonic_mean(0.9, 0.6, 0.6)), 3)
    0.675
    """
    fractions = []
    for place, of_values in enumerate(values):
        array = array_of(of_values, f"values[{place}]")
        fractions.append(floats(array, f"values[{place}]", shape=(None,) * array.ndim, nan=True))
    shapes = [fraction.shape for fraction in fractions]
    try:
        np.broadcast_shapes(*shapes)
    except ValueError:
        raise DataError(f"expected one shape, found {shapes}", field="values") from None
    with np.errstate(divide="ignore"):
        return len(fractions) / sum(1 / np.maximum(fraction, 0.0) for fraction in fractions)


def _lrp_of_prefixes(detections: ClassMatches, iou: float) -> np.ndarray:
    """LRP error of the first 1, 2, … detections (Eq. 1).

    It is infinite where a tie is cut, which no threshold can.
    """
    true = np.cumsum(detections.is_true)
    false = np.cumsum(~detections.is_true)
    missed = detections.positives - true
    localisation_error = np.where(detections.is_true, (1 - detections.quality) / (1 - iou), 0.0)
    errors = (false + missed + np.cumsum(localisation_error)) / (false + missed + true)
    is_tied = detections.score[:-1] == detections.score[1:]
    errors[:-1][is_tied] = np.inf
    return errors


def bin_of(score: np.ndarray) -> np.ndarray:
    """The confidence bin of each detection, ndarray of shape (n,); 1 lies in the last.

    Args:
        score: Confidences, 0 to 1, ndarray of shape (n,).
    """
    score = floats(score, "score")
    return np.clip(np.searchsorted(BIN_EDGES, score, side="right") - 1, 0, BINS - 1)


def in_a_bin(score: np.ndarray, protocol: Protocol) -> np.ndarray:
    """Detections whose confidence lies in a bin, ndarray of shape (n,), bool.

    All of them under "paper", those below 1 under "published-code".

    Args:
        score: Confidences, 0 to 1, ndarray of shape (n,).
        protocol: see `evaluate`.
    """
    one_of(protocol, get_args(Protocol), "protocol")
    score = floats(score, "score")
    if protocol == "published-code":
        return score < 1
    return np.ones(len(score), dtype=bool)


@dataclass(frozen=True)
class _Bins:
    """Detections of one class in each confidence bin; ndarrays of shape (BINS,).

    Args:
        count: Number of detections.
        confidence: Their mean confidence.
        performance: Precision × mean IoU.
    """

    count: np.ndarray
    confidence: np.ndarray
    performance: np.ndarray


def _bins(detections: ClassMatches, protocol: Protocol) -> _Bins:
    """The confidence bins of one class's detections."""
    has_bin = in_a_bin(detections.score, protocol)
    score = detections.score[has_bin]
    quality = detections.quality[has_bin]
    bin_index = bin_of(score)
    count = np.bincount(bin_index, minlength=BINS)
    # Precision times the mean IoU of the true positives is the sum of their IoU over all detections
    # of the bin.
    divisor = np.maximum(count, 1)
    confidence = np.bincount(bin_index, score, minlength=BINS) / divisor
    performance = np.bincount(bin_index, quality, minlength=BINS) / divisor
    return _Bins(count, confidence, performance)
