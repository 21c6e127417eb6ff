"""Whether a detector knows what it knows: accepts the right images, and is as sure as it is right
(Oksuz et al., Towards Building Self-Aware Object Detectors, CVPR 2023; SAOD).

Detections are matched as COCO does at IoU `TRUE_POSITIVE_IOU`, at most 100 an image and class; those of crowds and
difficult objects are left out. Errors (LRP, LaECE) are from 0, the best, to 1; qualities (IDQ, DAQ, balanced accuracy)
from 0 to 1, the best.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from farther.errors import DataError, ParameterError
from farther.metrics.boxes import image_numbers, overlaps
from farther.metrics.closed_set import IGNORED, TRUE, Labelled
from farther.tables import Objects, Regions

#: τ: from which IoU on a detection of the right class is a true positive.
TRUE_POSITIVE_IOU = 0.1

#: Confidence bins of LaECE, equally wide.
BINS = 25

#: Score of an image without detections: surely not in-distribution.
NO_DETECTION = -1e12


def evaluate(
    objects: Objects,
    regions: Regions,
    *,
    classes: Sequence[str] | None = None,
    rejected: Collection[str] = (),
    may_reject: Collection[str] = (),
    iou: float = TRUE_POSITIVE_IOU,
) -> dict[str, Any]:
    """Accuracy and calibration of the detections that a detector stands by.

    Args:
        objects: Ground truth of ID images (possibly corrupted).
        regions: Detections in them, after the confidence thresholds (`lrp_thresholds`) and, if any, calibration.
        classes: Names of the known classes; those of `regions` when None.
        rejected: Images that the detector does not accept: their detections do not count, so their objects are missed.
        may_reject: Of those, images that may be rejected (severe corruption): their objects do not count either.
        iou: τ of Eq. 1.

    Returns:
        Fractions; None where there is nothing to average.

        lrp: Mean LRP error (Eq. 1) over the classes with objects; 1 for a class without detections.
        lrp_loc, lrp_fp, lrp_fn: Means of its parts: 1 − IoU of the true positives, 1 − precision, 1 − recall.
        laece: Localisation-aware calibration error (Eq. 4), mean over the classes with detections.
        idq: Harmonic mean of 1 − lrp and 1 − laece.
        per_class: {class: {"lrp", "lrp_loc", "lrp_fp", "lrp_fn", "laece", "objects", "detections"}}.
        reliability: see `reliability`.

    Raises:
        DataError: there is no class, or one is named twice.
        ParameterError: the IoU is not above 0 and below 1.
    """
    turned_away = frozenset(rejected)
    excused = turned_away & frozenset(may_reject)
    made = regions[~np.isin(regions.image_id.astype(str), list(turned_away))]
    counted = objects[~np.isin(objects.image_id.astype(str), list(excused))]
    judged = judge(counted, made, classes, iou)
    per_class = {name: _class_figures(detections, iou) for name, detections in judged.items()}
    lrp = _mean([figures["lrp"] for figures in per_class.values()])
    laece = _mean([figures["laece"] for figures in per_class.values()])
    parts = {part: _mean([f[part] for f in per_class.values()]) for part in ("lrp_loc", "lrp_fp", "lrp_fn")}
    idq = None if lrp is None or laece is None else harmonic_mean(1 - lrp, 1 - laece)
    return {
        **{"lrp": lrp, **parts, "laece": laece, "idq": idq},
        "per_class": per_class,
        "reliability": reliability(judged.values()),
    }


@dataclass(frozen=True)
class Judged:
    """Detections of one class by falling confidence, ignored ones left out.

    Args:
        score: Confidences, ndarray of shape (n,).
        quality: IoU with the object that was matched, 0 for a false positive, ndarray of shape (n,).
        is_true: ndarray of shape (n,), bool.
        positives: Objects there are to be found.
    """

    score: np.ndarray
    quality: np.ndarray
    is_true: np.ndarray
    positives: int


def judge(
    objects: Objects, regions: Regions, classes: Sequence[str] | None = None, iou: float = TRUE_POSITIVE_IOU
) -> dict[str, Judged]:
    """Matches detections to objects, each class on its own.

    Raises:
        DataError: see `evaluate`.
        ParameterError: the IoU is not above 0 and below 1.
    """
    if not 0 < iou < 1:
        raise ParameterError(f"the IoU of a true positive is above 0 and below 1, found {iou}")
    known = Labelled(objects, regions, classes)
    matched = known.matches([iou], known.not_sought)[0]
    verdicts = known.verdicts([iou])
    quality = np.zeros(len(matched))
    found = matched >= 0
    quality[found] = overlaps(known.region_box[found], known.object_box[matched[found]])
    result = {}
    for k, name in enumerate(known.classes):
        rows = slice(verdicts.bounds[k], verdicts.bounds[k + 1])
        kind = verdicts.kind[0, rows]
        true, counts = kind[kind != IGNORED] == TRUE, kind != IGNORED
        own = np.where(true, quality[rows][counts], 0.0)
        result[name] = Judged(verdicts.score[rows][counts], own, true, int(verdicts.positives[k]))
    return result


def lrp_thresholds(
    objects: Objects, regions: Regions, classes: Sequence[str] | None = None, iou: float = TRUE_POSITIVE_IOU
) -> dict[str, float | None]:
    """Each class's confidence threshold with the smallest LRP error (LRP-optimal thresholding; Section 5.2).

    Returns:
        {class: threshold}; None for a class without objects or detections, or where no detection at all is best.

    Raises:
        DataError: see `evaluate`.
    """
    result: dict[str, float | None] = {}
    for name, detections in judge(objects, regions, classes, iou).items():
        result[name] = None
        errors = _lrp_of_prefixes(detections, iou)
        if detections.positives and len(errors) and errors.min() < 1:
            result[name] = float(detections.score[np.argmin(errors)])
    return result


def above(regions: Regions, thresholds: Mapping[str, float | None]) -> Regions:
    """The detections from their class's threshold on; none of a class with None or without an entry."""
    given = [thresholds.get(name) for name in regions.classes]
    levels = np.array([np.inf if level is None else level for level in given], dtype=np.float32)
    return regions[regions.score >= levels[regions.label]]


def reliability(judged: Collection[Judged]) -> dict[str, list[Any]]:
    """The reliability diagram (Fig. 4): for each confidence bin what was said and what was achieved.

    Returns:
        lower (edge of the bin), confidence and performance (precision × IoU), both means over the classes whose bin is
        not empty, None where all are; detections (their number).
    """
    binned = [_bins(detections) for detections in judged]
    counts = np.array([each[0] for each in binned]).reshape(-1, BINS)
    said = np.array([each[1] for each in binned]).reshape(-1, BINS)
    achieved = np.array([each[2] for each in binned]).reshape(-1, BINS)
    filled = counts > 0
    return {
        "lower": [j / BINS for j in range(BINS)],
        "confidence": [_mean(said[filled[:, j], j].tolist()) for j in range(BINS)],
        "performance": [_mean(achieved[filled[:, j], j].tolist()) for j in range(BINS)],
        "detections": counts.sum(axis=0).tolist(),
    }


def image_scores(images: Sequence[str], regions: Regions, top: int = 3) -> np.ndarray:
    """How much in-distribution each image looks: minus the mean of 1 − confidence of its surest detections (Section 4).

    Args:
        images: Names of all images, those without detections too.
        top: How many detections of an image count.

    Returns:
        ndarray of shape (len(images),), −1 … 0; `NO_DETECTION` for an image without detections.

    Raises:
        DataError: a detection is of an image that is not named.
        ParameterError: `top` is below 1.
    """
    if top < 1:
        raise ParameterError(f"at least one detection of an image counts, found top={top}")
    names = np.array(list(images), dtype=object)
    strangers = set(regions.image_id) - set(images)
    if strangers:
        raise DataError(f"detections of {min(strangers)!r}, which is none of the images", field="image_id")
    different, (number, wanted) = image_numbers(regions.image_id, names)
    order = np.lexsort((-regions.score.astype(np.float64), number))
    in_order = number[order]
    first = np.searchsorted(in_order, np.arange(len(different)))
    counts = np.arange(len(order)) - first[in_order] < top
    rows, of_image = order[counts], in_order[counts]
    taken = np.bincount(of_image, minlength=len(different))
    doubt = np.bincount(of_image, 1.0 - regions.score[rows].astype(np.float64), minlength=len(different))
    scores = np.where(taken > 0, -doubt / np.maximum(taken, 1), NO_DETECTION)
    return scores[wanted]


def balanced_accuracy(id_scores: np.ndarray, ood_scores: np.ndarray, threshold: float) -> dict[str, float | None]:
    """How well a threshold accepts ID images and rejects OOD images.

    Args:
        id_scores, ood_scores: Scores of images, higher means more in-distribution.
        threshold: An image is accepted iff its score is at least that.

    Returns:
        tpr (share of ID images accepted), tnr (share of OOD images rejected), balanced_accuracy (their harmonic mean;
        the paper's text says FPR for the second, its Table A.12 and its code TNR). None where a side is empty.
    """
    if not len(id_scores) or not len(ood_scores):
        return {"balanced_accuracy": None, "tpr": None, "tnr": None}
    tpr = float(np.mean(np.asarray(id_scores) >= threshold))
    tnr = float(np.mean(np.asarray(ood_scores) < threshold))
    return {"balanced_accuracy": harmonic_mean(tpr, tnr), "tpr": tpr, "tnr": tnr}


def best_threshold(id_scores: np.ndarray, ood_scores: np.ndarray) -> float:
    """The threshold with the largest balanced accuracy, the largest of equal ones.

    Raises:
        DataError: a side is empty.
    """
    if not len(id_scores) or not len(ood_scores):
        raise DataError(
            "a threshold needs scores of both sides", field="id_scores" if len(ood_scores) else "ood_scores"
        )
    levels = np.unique(np.concatenate([id_scores, ood_scores]))[::-1]
    tpr = 1 - np.searchsorted(np.sort(id_scores), levels, side="left") / len(id_scores)
    tnr = np.searchsorted(np.sort(ood_scores), levels, side="left") / len(ood_scores)
    total = tpr + tnr
    quality = np.divide(2 * tpr * tnr, total, out=np.zeros_like(total), where=total > 0)
    return float(levels[np.argmax(quality)])


def detection_awareness_quality(balanced: float, idq: float, idq_shifted: float) -> float:
    """DAQ: harmonic mean of the balanced accuracy and of the IDQ on clean and on corrupted ID images (Section 6)."""
    return harmonic_mean(balanced, idq, idq_shifted)


def harmonic_mean(*values: float) -> float:
    """Harmonic mean of numbers from 0 on; 0 if one of them is."""
    return 0.0 if min(values) <= 0 else len(values) / sum(1 / value for value in values)


def _lrp_of_prefixes(detections: Judged, iou: float) -> np.ndarray:
    """LRP error of the first 1, 2, … detections (Eq. 1); infinite where a tie is cut, which no threshold can."""
    true = np.cumsum(detections.is_true)
    false = np.cumsum(~detections.is_true)
    missed = detections.positives - true
    misplaced = np.cumsum(np.where(detections.is_true, (1 - detections.quality) / (1 - iou), 0.0))
    errors = (false + missed + misplaced) / (false + missed + true)
    errors[:-1][detections.score[:-1] == detections.score[1:]] = np.inf
    return errors


def _class_figures(detections: Judged, iou: float) -> dict[str, Any]:
    made, true = len(detections.score), int(detections.is_true.sum())
    sought = detections.positives > 0
    lrp = float(_lrp_of_prefixes(detections, iou)[-1]) if made else 1.0
    return {
        "lrp": lrp if sought else None,
        "lrp_loc": float(np.mean(1 - detections.quality[detections.is_true])) if true else None,
        "lrp_fp": 1 - true / made if made and sought else None,
        "lrp_fn": 1 - true / detections.positives if sought else None,
        "laece": _laece(detections),
        "objects": detections.positives,
        "detections": made,
    }


def _laece(detections: Judged) -> float | None:
    """Eq. 4: mean gap between confidence and precision × IoU, bins weighted by their share of the detections."""
    if not len(detections.score):
        return None
    counts, said, achieved = _bins(detections)
    return float(np.sum(counts / len(detections.score) * np.abs(said - achieved)))


def _bins(detections: Judged) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Detections, mean confidence, and precision × mean IoU of each bin; a confidence of exactly 1 lies in none."""
    inside = detections.score < 1
    score, quality = detections.score[inside], detections.quality[inside]
    edges = np.linspace(0, 1, BINS + 1)
    place = np.clip(np.searchsorted(edges, score, side="right") - 1, 0, BINS - 1)
    counts = np.bincount(place, minlength=BINS)
    # Precision times the mean IoU of the true positives is the sum of their IoU over all detections of the bin.
    said = np.bincount(place, score, minlength=BINS) / np.maximum(counts, 1)
    achieved = np.bincount(place, quality, minlength=BINS) / np.maximum(counts, 1)
    return counts, said, achieved


def _mean(values: Sequence[float | None]) -> float | None:
    given = [value for value in values if value is not None]
    return float(np.mean(given)) if given else None
