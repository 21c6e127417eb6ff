"""Ablation of self-awareness, and its sensitivity to each of its choices.

They are tables and figures of Oksuz et al. (CVPR 2023, arXiv:2307.00934). They are computed from
regions, so they are evaluated here and stored with the other results; reports only read these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, get_args

import numpy as np

from farther.evaluation.image_uncertainties import average_precision
from farther.evaluation.results import Ablation
from farther.evaluation.self_aware_run import ALL_OOD, SelfAwareRun
from farther.metrics import ood, self_awareness
from farther.metrics.matching.boxes import image_numbers
from farther.metrics.self_awareness import calibration, calibration_errors, image_uncertainty
from farther.metrics.self_awareness.detector import (
    ConfidenceThreshold,
    ImageThreshold,
    SelfAwareDetector,
)
from farther.metrics.self_awareness.images import ANY_OVERLAP
from farther.metrics.self_awareness.matches import ClassMatches
from farther.metrics.weighting import plain
from farther.tables import Regions
from farther.terms import Protocol

#: Values of τ that the sensitivity to it is measured at (Figure A.13).
IOUS = (0.1, 0.3, 0.5, 0.7, 0.9)

#: Numbers of detections per image that are filled up with dummy detections (Figure 5 a and Table
#: A.13).
TOP_K = (10, 25, 50, 100, 300, 500)

#: Confidence thresholds for all classes (Figure 5 b and Table A.14); at 0 there is none.
THRESHOLDS = (0.0, 0.3, 0.5, 0.7)

#: Image thresholds, and confidence thresholds of all classes, in the curves (Figure A.15: both from
#: 0 to 1).
IMAGE_THRESHOLDS = tuple((np.arange(11) / 10).tolist())
CONFIDENCES = tuple((np.arange(11) / 10).tolist())

#: Metrics of these curves: those of the figure, and both parts of DAQ that LRP and LaECE make.
SWEPT = ("daq", "balanced_accuracy", "lrp", "laece", "lrp_t", "laece_t", "idq", "idq_t")


def ablation(run: SelfAwareRun) -> list[Ablation]:
    """Self-awareness with one part after the other (Table 7)."""
    calibrator = run.awareness.calibrator
    rows = [
        _ablation_row(run, "half", None, "keep_95"),
        _ablation_row(run, "lrp_optimal", None, "keep_95"),
        _ablation_row(run, "lrp_optimal", calibrator, "keep_95"),
    ]
    if run.pseudo_ood is not None:
        rows.append(_ablation_row(run, "lrp_optimal", calibrator, "pseudo_ood"))
    return rows


def _ablation_row(
    run: SelfAwareRun,
    confidence_threshold: ConfidenceThreshold,
    calibrator: calibration.Kind | None,
    image_threshold: ImageThreshold,
) -> Ablation:
    detector = run.fit(calibrator, image_threshold, confidence_threshold)
    return Ablation(
        confidence_threshold=confidence_threshold,
        calibrator=calibrator,
        image_threshold=image_threshold,
        metrics=run.quality(detector),
    )


def calibrator_errors(run: SelfAwareRun) -> dict[str, Any]:
    """Errors with each calibrator and without calibration (Table 5).

    No image is rejected, since Section 5 comes before that decision.
    """
    errors_by_calibrator = {}
    for kind in (None, *get_args(calibration.Kind)):
        detector = run.fit_calibrator(kind)
        is_kept, confidence = detector.confidences(run.clean.regions)
        matched = run.clean.match(run.iou, is_kept, confidence)
        matched_anywhere = run.clean.match(ANY_OVERLAP, is_kept, confidence)
        precision_iou = calibration_errors.PRECISION_IOU
        matched_for_precision = run.clean.match(precision_iou, is_kept, confidence)

        errors = plain(run.means(matched, None))
        errors |= calibration_errors.of_matched(matched_anywhere, matched_for_precision)
        errors_by_calibrator[kind or "none"] = errors
    return errors_by_calibrator


def image_aurocs_by_aggregate(run: SelfAwareRun) -> dict[str, dict[str, float | None]]:
    """AUROC of ID test images against those of each OOD split and of all (Table 2).

    Returns:
        Aggregate → OOD split, and `ALL_OOD` → AUROC.
    """
    aurocs_by_aggregate = {}
    for aggregate in image_uncertainty.AGGREGATES:
        id_uncertainty = run.clean.uncertainty(aggregate)
        aurocs: dict[str, float | None] = {}
        ood_uncertainties = [np.zeros(0)]
        for name, images in run.ood.items():
            ood_uncertainty = images.uncertainty(aggregate)
            ood_uncertainties.append(ood_uncertainty)
            aurocs[name] = ood.auroc(-id_uncertainty, -ood_uncertainty)
        aurocs[ALL_OOD] = ood.auroc(-id_uncertainty, -np.concatenate(ood_uncertainties))
        aurocs_by_aggregate[aggregate] = aurocs
    return aurocs_by_aggregate


def over_thresholds(run: SelfAwareRun) -> dict[str, list[dict[str, float | None]]]:
    """Metrics over the image threshold, and over one confidence threshold for all classes.

    Returns:
        "image_threshold" and "confidence" → one row per threshold (Figure A.15): the threshold
        under this name, and the metrics in `SWEPT`; rows of the former also `kept`, the share of
        ID validation images that are accepted.
    """
    return {
        "image_threshold": _over_image_threshold(run),
        "confidence": _over_confidence_threshold(run),
    }


def _over_image_threshold(run: SelfAwareRun) -> list[dict[str, float | None]]:
    validation_uncertainty = run.uncertainty(run.held_out)
    rows = []
    for threshold in IMAGE_THRESHOLDS:
        detector = replace(run.detector, image_threshold=threshold)
        is_accepted = validation_uncertainty <= threshold
        kept = float(is_accepted.mean()) if len(is_accepted) else None
        rows.append({"image_threshold": threshold, "kept": kept, **_swept(run, detector)})
    return rows


def _over_confidence_threshold(run: SelfAwareRun) -> list[dict[str, float | None]]:
    rows = []
    for confidence in CONFIDENCES:
        thresholds: dict[str, float | None] = {}
        for name in run.clean.regions.header.known_classes:
            thresholds[name] = confidence

        calibrators = _fit_calibrators(run, thresholds, run.iou)
        detector = replace(run.detector, confidence_thresholds=thresholds, calibrators=calibrators)
        rows.append({"confidence": confidence, **_swept(run, detector)})
    return rows


def _fit_calibrators(
    run: SelfAwareRun, thresholds: Mapping[str, float | None], iou: float
) -> dict[str, calibration.Calibrator]:
    """Calibrators of the run's kind, fitted to the validation images with objects.

    These are the images of Algorithm A.1, D_Val+.

    Args:
        run: The run.
        thresholds: Confidence threshold of each class.
        iou: Smallest IoU of a true positive.
    """
    images = run.held_out.with_objects
    matched = images.match(iou, images.above(thresholds))
    return calibration.of_matched(run.awareness.calibrator, matched)


def _swept(run: SelfAwareRun, detector: SelfAwareDetector) -> dict[str, float | None]:
    quality = run.quality(detector)
    return {name: quality.get(name) for name in SWEPT}


def over_ious(run: SelfAwareRun) -> list[dict[str, Any]]:
    """LRP, and LaECE before and after calibration, at other values of τ (Figure A.13).

    The confidence thresholds stay those of the run's τ; calibrators are fitted at each value.
    """
    thresholds = run.detector.confidence_thresholds
    rows = []
    for iou in IOUS:
        calibrators = _fit_calibrators(run, thresholds, iou)
        detector = replace(run.detector, calibrators=calibrators)
        is_kept, confidence = detector.confidences(run.clean.regions)
        calibrated = plain(run.means(run.clean.match(iou, is_kept, confidence), None, iou))
        uncalibrated = plain(run.means(run.clean.match(iou, is_kept), None, iou))
        row = {
            "iou": iou,
            "lrp": calibrated["lrp"],
            "laece": calibrated["laece"],
            "laece_before": uncalibrated["laece"],
        }
        rows.append(row)
    return rows


def over_dummy_detections(run: SelfAwareRun) -> list[dict[str, Any]]:
    """Validation images whose detections are filled up to k by dummies, and without (Table A.13).

    All detections count, whatever their confidence. Dummies have confidence 0. Those of an image
    are spread evenly over the classes: the expectation of the paper's random ones.
    """
    images = run.held_out
    is_kept = np.ones(len(images.regions), dtype=bool)
    rows: list[dict[str, Any]] = [{"k": None, **_quality_on_validation(run, is_kept)}]
    for k in TOP_K:
        is_kept = _is_among_first(images.regions, k)
        dummies = k * len(images.names) - int(is_kept.sum())
        row = {"k": k, **_quality_on_validation(run, is_kept, dummies)}
        row["detections_per_image"] = k
        rows.append(row)
    return rows


def over_confidence_thresholds(run: SelfAwareRun) -> list[dict[str, Any]]:
    """Validation images by the confidence threshold of their detections.

    `threshold` is None for the LRP-optimal thresholds of the classes, which come from the images
    with objects, and 0 for all detections (Figure 5 b and Table A.14).
    """
    images = run.held_out
    rows: list[dict[str, Any]] = []
    for threshold in THRESHOLDS:
        is_kept = images.regions.score >= threshold
        rows.append({"threshold": threshold, **_quality_on_validation(run, is_kept)})
    is_kept = images.above(run.detector.confidence_thresholds)
    rows.append({"threshold": None, **_quality_on_validation(run, is_kept)})
    return rows


def _quality_on_validation(
    run: SelfAwareRun, is_kept: np.ndarray, dummies: int = 0
) -> dict[str, float | None]:
    """LRP, LaECE and AP of validation images, uncalibrated.

    Dummies are false positives in the lowest bin, whose confidence and IoU are 0, so they only
    enlarge counts. They do not change AP, in which they are ranked last.

    Args:
        run: The run.
        is_kept: Whether each region counts, ndarray of shape (N,), bool.
        dummies: Number of dummy detections in all images.

    Returns:
        detections_per_image, without dummies; lrp, laece, ap, and the ends `ap_low` and `ap_high`
        of its interval.
    """
    images = run.held_out
    matched = images.match(run.iou, is_kept)
    dummies_per_class = dummies / max(len(matched), 1)
    lrp = []
    laece = []
    for matches in matched.values():
        if matches.positives:
            lrp.append(_lrp_with_dummies(matches, run.iou, dummies_per_class))
        class_laece = _laece_with_dummies(matches, run.protocol, dummies_per_class)
        if class_laece is not None:
            laece.append(class_laece)

    ap = average_precision(images, run.settings.draws(images.names), is_kept)
    ap_low, ap_high = ap.intervals.get("ap") or (None, None)
    return {
        "detections_per_image": int(is_kept.sum()) / max(len(images.names), 1),
        "lrp": float(np.mean(lrp)) if lrp else None,
        "laece": float(np.mean(laece)) if laece else None,
        "ap": ap.values["ap"],
        "ap_low": ap_low,
        "ap_high": ap_high,
    }


def _lrp_with_dummies(matches: ClassMatches, iou: float, dummies: float) -> float:
    """LRP of a class that has objects, with further false positives."""
    true_positives = int(matches.is_true.sum())
    false_positives = len(matches.score) + dummies - true_positives
    wrong = false_positives + matches.positives - true_positives
    localisation = float((1 - matches.quality[matches.is_true]).sum()) / (1 - iou)
    return (wrong + localisation) / (wrong + true_positives)


def _laece_with_dummies(matches: ClassMatches, protocol: Protocol, dummies: float) -> float | None:
    """LaECE of a class with further detections of confidence and IoU 0; None where undefined."""
    detections = len(matches.score) + dummies
    if protocol == "published-code":
        if not matches.positives:
            return 0.0  # see `farther.metrics.self_awareness.evaluate`
    elif not detections:
        return None

    is_binned = self_awareness.in_a_bin(matches.score, protocol)
    score = matches.score[is_binned]
    gap = score - matches.quality[is_binned]
    gap_by_bin = np.bincount(self_awareness.bin_of(score), gap, self_awareness.BINS)
    return float(np.abs(gap_by_bin).sum()) / max(detections, 1)


def _is_among_first(regions: Regions, k: int) -> np.ndarray:
    """Whether each region is among the k most confident of its image, ndarray of shape (N,)."""
    _, (image,) = image_numbers(regions.image_id)
    order = np.lexsort((-regions.score.astype(np.float64), image))
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order)) - np.searchsorted(image[order], image[order])
    return rank < k
