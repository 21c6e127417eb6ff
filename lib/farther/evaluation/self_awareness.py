"""Metrics, tables and curves of a run's self-awareness (Oksuz et al., CVPR 2023, arXiv:2307.00934)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, get_args

import numpy as np

from farther.evaluation import intervals
from farther.evaluation.image_uncertainties import accuracy, average_precision, uncertainties
from farther.evaluation.inputs import RunInputs
from farther.evaluation.results import (
    Ablation,
    AcceptedImages,
    CalibratedReliability,
    ExampleImage,
    Reliability,
    SelfAwarenessResults,
)
from farther.evaluation.self_aware_run import SelfAwareRun, rejected
from farther.evaluation.sweeps import mean_average_precision
from farther.metrics import closed_set, ood, self_awareness
from farther.metrics.matching.boxes import image_numbers, is_among
from farther.metrics.self_awareness import calibration, calibration_errors, image_uncertainty
from farther.metrics.self_awareness.detector import (
    ConfidenceThreshold,
    ImageThreshold,
    SelfAwareDetector,
)
from farther.metrics.self_awareness.images import ANY_OVERLAP, DetectedImages
from farther.metrics.weighting import plain, value
from farther.tables import Regions

#: Edges of the bins of image uncertainty in which the paper counts images (Figure 2).
UNCERTAINTY_BINS = np.linspace(0, 1, 11)

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

#: Calibrators of the reliability diagrams of Figure A.14.
DIAGRAMS: tuple[calibration.Kind | None, ...] = (None, "linear", "isotonic")


def evaluate_self_awareness(inputs: RunInputs) -> SelfAwarenessResults:
    """Self-awareness of a run.

    Returns:
        settings: How the run was made self-aware.
        detector: The result.
        values: lrp, lrp_loc, lrp_fp, lrp_fn, laece, idq on ID test images; the same with `_t` on
            all shifted images together; tpr, tnr, balanced_accuracy: shares of ID test images
            accepted and of OOD images rejected, and their harmonic mean; daq: that of
            balanced_accuracy, idq and idq_t, None without shifted images.
        intervals: Of all of these.
        per_class, reliability, reliability_before: On ID test images; the last before calibration.
        reliabilities: For the calibration split and the ID test split the diagram by calibrator
            (Figure A.14).
        splits: For each OOD split without known objects, and for `all` of them: AUROC, tpr, tnr and
            balanced_accuracy.
        images: For the ID test split, each shifted and each OOD split the number of images, how
            many are rejected, and `histogram`, the share of images in each bin of uncertainty; for
            ID and shifted ones also severity, metrics, and AUROC against all OOD images.
        map_by_uncertainty: AP of ID and shifted images by bin of uncertainty (Figure 2).
        image_thresholds: Threshold and balanced accuracy of either way to take it (Table A.12).
        calibrated: Errors with each calibrator and with none (Table 5).
        ablation: Table 7. aggregates: AUROC by aggregate (Table 2). uncertainties: AUROC by
            uncertainty of detections and aggregate (Tables 3 and A.9 to A.11). accuracy: AP and LRP
            (Tables 6 and A.8). sweeps: Figure A.15. ious: Figure A.13. top_k: Figure 5 a and Table
            A.13. by_threshold: Figure 5 b and Table A.14.
        thresholds_on_test: LRP-optimal thresholds on ID test images (Figure A.16).

    Raises:
        DataError: a split is absent or wrong.
        ParameterError: pseudo-OOD images are asked for, and the benchmark has none.
    """
    run = SelfAwareRun(inputs)
    detector, iou = run.detector, run.asked.iou
    clean = self_awareness.metrics(run.match(detector, run.clean), iou, run.settings.protocol)
    before = run.clean.match(iou, run.clean.above(detector.confidence_thresholds))
    return SelfAwarenessResults(
        settings=replace(run.asked, image_threshold=run.image_threshold),
        detector=detector,
        values=run.quality(detector),
        intervals=intervals.within(run.replicates()) if run.draws else {},
        per_class=clean["per_class"],
        reliability=Reliability(**clean["reliability"]),
        reliability_before=Reliability(
            **self_awareness.reliability(before.values(), run.settings.protocol)
        ),
        reliabilities=_reliabilities(run),
        splits=_by_split(run),
        images=_by_images(run),
        map_by_uncertainty=_map_by_uncertainty(run),
        image_thresholds=_image_thresholds(run),
        calibrated=_calibrated(run),
        ablation=_ablation(run),
        aggregates=_aggregates(run),
        uncertainties=uncertainties(run, inputs),
        accuracy=accuracy(run),
        sweeps=_sweeps(run),
        ious=_ious(run),
        top_k=_top_k(run),
        by_threshold=_by_threshold(run),
        thresholds_on_test=run.clean.lrp_thresholds(iou),
    )


def _doubt(run: SelfAwareRun, images: DetectedImages) -> np.ndarray:
    return images.uncertainty(run.detector.aggregate)


def _auroc(known: np.ndarray, unknown: Iterable[np.ndarray]) -> float | None:
    return ood.auroc(-known, -np.concatenate([np.zeros(0), *unknown]))


def _by_split(run: SelfAwareRun) -> dict[str, Any]:
    known = _doubt(run, run.clean)
    unknown = {name: _doubt(run, images) for name, images in run.ood.items()}
    level = run.detector.image_threshold
    found: dict[str, Any] = {}
    for name, doubt in {**unknown, "all": np.concatenate([np.zeros(0), *unknown.values()])}.items():
        shares = {} if level is None else self_awareness.balanced_accuracy(-known, -doubt, -level)
        found[name] = {"auroc": _auroc(known, [doubt]), **shares}
    return found


def _by_images(run: SelfAwareRun) -> dict[str, AcceptedImages]:
    unknown = [_doubt(run, images) for images in run.ood.values()]
    id_split = run.settings.id_split
    severities = {id_split: 0, **run.severities}
    preferred = _accepted_with_copies(run)
    found = {}
    for name, images in {id_split: run.clean, **run.shifted, **run.ood}.items():
        doubt = _doubt(run, images)
        refused = rejected(run.detector, images)
        counts = np.histogram(np.minimum(doubt, 1.0), UNCERTAINTY_BINS)[
            0
        ]  # without detections: the last bin
        found[name] = AcceptedImages(
            images=len(images.names),
            rejected_images=int(refused.sum()),
            histogram=(counts / max(len(doubt), 1)).tolist(),
            examples=_examples(images, doubt, refused, preferred if name in severities else None),
        )
        if name in severities:
            found[name].severity, found[name].auroc = severities[name], _auroc(doubt, unknown)
            found[name].metrics = plain(run.measure(run.detector, images))
    return found


def _accepted_with_copies(run: SelfAwareRun) -> str | None:
    """The first accepted ID test image that is in the first shifted split too; None where there is none."""
    for images in run.shifted.values():
        copied = set(images.names)
        for name, is_rejected in zip(
            run.clean.names, rejected(run.detector, run.clean), strict=True
        ):
            if name in copied and not is_rejected:
                return name
        break
    return None


def _examples(
    images: DetectedImages, doubt: np.ndarray, refused: np.ndarray, preferred: str | None
) -> list[ExampleImage]:
    """The first accepted image by name and the first rejected one; none is hand-picked.

    Args:
        images: I images.
        doubt: Uncertainty of each, ndarray of shape (I,).
        refused: Whether it is rejected, ndarray of shape (I,), bool.
        preferred: An image that is taken before the first one, so that corrupted copies of one
            image are beside it.
    """
    examples = []
    for is_rejected in (False, True):
        rows = np.flatnonzero(refused == is_rejected).tolist()
        if not rows:
            continue
        row = rows[0]
        if preferred in images.names and images.names.index(preferred) in rows:
            row = images.names.index(preferred)
        examples.append(
            ExampleImage(
                image_id=images.names[row], uncertainty=float(doubt[row]), is_rejected=is_rejected
            )
        )
    return examples


def _map_by_uncertainty(run: SelfAwareRun) -> list[float | None]:
    parts = {"clean": run.clean, **run.shifted}
    pooled = DetectedImages.pooled(parts)
    doubt = np.minimum(_doubt(run, pooled), 1.0)
    place = np.minimum(
        np.searchsorted(UNCERTAINTY_BINS, doubt, side="right") - 1, len(UNCERTAINTY_BINS) - 2
    )
    found: list[float | None] = []
    for number in range(len(UNCERTAINTY_BINS) - 1):
        names = np.array(pooled.names, dtype=object)[place == number]
        objects = pooled.objects[is_among(pooled.objects.image_id, names)]
        regions = pooled.regions[is_among(pooled.regions.image_id, names)]
        matched = closed_set.ClosedSet.of(objects, regions).match(closed_set.COCO_IOUS)
        found.append(mean_average_precision(matched, 0.0)["map"] if len(objects) else None)
    return found


def _image_thresholds(run: SelfAwareRun) -> dict[str, Any]:
    found = {}
    for kind in get_args(ImageThreshold):
        if kind == "keep_95" or run.pseudo:
            detector = run.fit(None, kind)
            found[kind] = {"threshold": detector.image_threshold, **plain(run.balanced(detector))}
    return found


def _calibrated(run: SelfAwareRun) -> dict[str, Any]:
    """Errors with each calibrator; no image is rejected, since Section 5 is before that is decided (Table 5)."""
    found = {}
    for kind in (None, *get_args(calibration.Kind)):
        kept, score = run.fit_calibrator(kind).confidences(run.clean.regions)
        at = {
            iou: run.clean.match(iou, kept, score)
            for iou in (run.asked.iou, ANY_OVERLAP, calibration_errors.PRECISION_IOU)
        }
        errors = calibration_errors.of_matched(
            at[ANY_OVERLAP], at[calibration_errors.PRECISION_IOU]
        )
        found[kind or "none"] = {**plain(run.means(at[run.asked.iou], None)), **errors}
    return found


def _ablation(run: SelfAwareRun) -> list[Ablation]:
    chosen = run.asked.calibrator
    rows: list[tuple[ConfidenceThreshold, calibration.Kind | None, ImageThreshold]] = [
        ("half", None, "keep_95"),
        ("lrp_optimal", None, "keep_95"),
        ("lrp_optimal", chosen, "keep_95"),
    ]
    if run.pseudo:
        rows.append(("lrp_optimal", chosen, "pseudo_ood"))
    return [
        Ablation(
            confidence_threshold=confidence,
            calibrator=calibrator,
            image_threshold=image,
            metrics=run.quality(run.fit(calibrator, image, confidence)),
        )
        for confidence, calibrator, image in rows
    ]


def _aggregates(run: SelfAwareRun) -> dict[str, Any]:
    found = {}
    for how in image_uncertainty.AGGREGATES:
        known = run.clean.uncertainty(how)
        unknown = {name: images.uncertainty(how) for name, images in run.ood.items()}
        found[how] = {name: _auroc(known, [doubt]) for name, doubt in unknown.items()}
        found[how]["all"] = _auroc(known, unknown.values())
    return found


def _sweeps(run: SelfAwareRun) -> dict[str, list[dict[str, float | None]]]:
    """The run over the image threshold, and over one confidence threshold for all classes (Figure A.15).

    Each row has the threshold, `image_threshold` or `confidence`, and the metrics in `SWEPT`; rows
    of the former also `kept`, the share of ID validation images that are accepted.
    """
    chosen = run.detector
    uncertainty_of_validation = _doubt(run, run.held_out)
    over_images = []
    for level in IMAGE_THRESHOLDS:
        detector = replace(chosen, image_threshold=level)
        accepted = uncertainty_of_validation <= level
        kept = float(accepted.mean()) if len(accepted) else None
        over_images.append({"image_threshold": level, "kept": kept, **_swept(run, detector)})

    over_confidence = []
    for confidence in CONFIDENCES:
        thresholds: dict[str, float | None] = {}
        for name in run.clean.regions.header.known_classes:
            thresholds[name] = confidence
        kept_in_validation = run.held_out.above(thresholds)
        matched = run.held_out.match(run.asked.iou, kept_in_validation)
        calibrators = calibration.of_matched(run.asked.calibrator, matched)
        detector = replace(chosen, confidence_thresholds=thresholds, calibrators=calibrators)
        over_confidence.append({"confidence": confidence, **_swept(run, detector)})
    return {"image_threshold": over_images, "confidence": over_confidence}


def _swept(run: SelfAwareRun, detector: SelfAwareDetector) -> dict[str, float | None]:
    quality = run.quality(detector)
    return {name: quality.get(name) for name in SWEPT}


def _reliabilities(run: SelfAwareRun) -> dict[str, dict[str, CalibratedReliability]]:
    """Diagrams by calibrator, of the images that it learns from and of ID test images, none rejected (Figure A.14)."""
    settings, iou = run.settings, run.asked.iou
    sides = {settings.calibration_split: run.calibration_images, settings.id_split: run.clean}
    diagrams: dict[str, dict[str, CalibratedReliability]] = {name: {} for name in sides}
    for kind in dict.fromkeys((*DIAGRAMS, run.asked.calibrator)):
        detector = run.fit_calibrator(kind)
        for name, images in sides.items():
            kept, score = detector.confidences(images.regions)
            matched = images.match(iou, kept, score)
            diagram = self_awareness.reliability(matched.values(), settings.protocol)
            laece = value(run.means(matched, None)["laece"][0])
            diagrams[name][kind or "none"] = CalibratedReliability(**diagram, laece=laece)
    return diagrams


def _ious(run: SelfAwareRun) -> list[dict[str, Any]]:
    """LRP, and LaECE before and after calibration, at other values of τ; the thresholds stay."""
    kept, score = run.detector.confidences(run.clean.regions)
    rows = []
    for iou in IOUS:
        found, raw = (
            plain(run.means(run.clean.match(iou, kept, confidence), None, iou))
            for confidence in (score, None)
        )
        rows.append(
            {"iou": iou, "lrp": found["lrp"], "laece": found["laece"], "laece_before": raw["laece"]}
        )
    return rows


def _top_k(run: SelfAwareRun) -> list[dict[str, Any]]:
    """Validation images whose detections are filled up to k by dummies of confidence 0, and without (Table A.13).

    The dummies of an image are spread evenly over the classes: the expectation of the paper's
    random ones.
    """
    images = run.held_out
    above_thresholds = images.above(run.detector.confidence_thresholds)
    rows = [{"k": None, **_quality(run, above_thresholds)}]
    for k in TOP_K:
        most_confident = _is_first(images.regions, k)
        dummies = k * len(images.names) - int(most_confident.sum())
        rows.append({"k": k, **_quality(run, most_confident, dummies), "detections_per_image": k})
    return rows


def _by_threshold(run: SelfAwareRun) -> list[dict[str, Any]]:
    """Validation images by the confidence threshold of their detections (Figure 5 b and Table A.14).

    `threshold` is None for the LRP-optimal thresholds of the classes, and 0 for all detections.
    """
    images = run.held_out
    scores = images.regions.score
    rows = [
        {"threshold": threshold, **_quality(run, scores >= threshold)} for threshold in THRESHOLDS
    ]
    lrp_optimal = images.above(images.lrp_thresholds(run.asked.iou))
    rows.append({"threshold": None, **_quality(run, lrp_optimal)})
    return rows


def _quality(run: SelfAwareRun, kept: np.ndarray, dummies: int = 0) -> dict[str, float | None]:
    """LRP, LaECE and AP of validation images, uncalibrated.

    Dummies are false positives in the lowest bin, whose confidence and IoU are 0, so they only
    enlarge counts. They do not change AP, in which they are ranked last.

    Args:
        run: The run.
        kept: The regions that count, ndarray of shape (N,), bool.
        dummies: Number of dummy detections in all images.

    Returns:
        detections_per_image, without dummies; lrp, laece, ap, and the ends `ap_low` and `ap_high`
        of its interval.
    """
    images, iou, protocol = run.held_out, run.asked.iou, run.settings.protocol
    matched = images.match(iou, kept)
    dummies_per_class = dummies / max(len(matched), 1)
    lrp, laece = [], []
    for matches in matched.values():
        detections = len(matches.score) + dummies_per_class
        true = int(matches.is_true.sum())
        if matches.positives:
            misplaced = float((1 - matches.quality[matches.is_true]).sum()) / (1 - iou)
            wrong = detections - true + matches.positives - true
            lrp.append((wrong + misplaced) / (wrong + true))
        if protocol == "published-code" and not matches.positives:
            laece.append(0.0)  # see `farther.metrics.self_awareness.evaluate`
        elif detections or protocol == "published-code":
            binned = self_awareness.in_a_bin(matches.score, protocol)
            score = matches.score[binned]
            gap = score - matches.quality[binned]
            gap_per_bin = np.bincount(self_awareness.bin_of(score), gap, self_awareness.BINS)
            laece.append(float(np.abs(gap_per_bin).sum()) / max(detections, 1))

    ap = average_precision(images, run.settings.draws(images.names), kept)
    low, high = ap.intervals.get("ap") or (None, None)
    return {
        "detections_per_image": int(kept.sum()) / max(len(images.names), 1),
        "lrp": float(np.mean(lrp)) if lrp else None,
        "laece": float(np.mean(laece)) if laece else None,
        "ap": ap.values["ap"],
        "ap_low": low,
        "ap_high": high,
    }


def _is_first(regions: Regions, k: int) -> np.ndarray:
    """The k most confident regions of each image, ndarray of shape (N,), bool."""
    _, (number,) = image_numbers(regions.image_id)
    order = np.lexsort((-regions.score.astype(np.float64), number))
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order)) - np.searchsorted(number[order], number[order])
    return rank < k
