"""Self-awareness of a run (Oksuz et al., CVPR 2023, arXiv:2307.00934)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, get_args

import numpy as np

from farther.evaluation import intervals
from farther.evaluation.image_uncertainties import accuracy, uncertainties
from farther.evaluation.inputs import RunInputs
from farther.evaluation.results import (
    AcceptedImages,
    CalibratedReliability,
    ExampleImage,
    Reliability,
    SelfAwarenessResults,
)
from farther.evaluation.self_aware_run import ALL_OOD, SelfAwareRun, rejected
from farther.evaluation.self_awareness_ablation import (
    ablation,
    calibrator_errors,
    image_aurocs_by_aggregate,
    over_confidence_thresholds,
    over_dummy_detections,
    over_ious,
    over_thresholds,
)
from farther.evaluation.sweeps import mean_average_precision
from farther.metrics import closed_set, ood, self_awareness
from farther.metrics.matching.boxes import is_among
from farther.metrics.self_awareness import calibration
from farther.metrics.self_awareness.detector import ImageThreshold
from farther.metrics.self_awareness.images import DetectedImages
from farther.metrics.weighting import plain, value

#: Edges of the bins of image uncertainty in which the paper counts images (Figure 2).
UNCERTAINTY_BINS = np.linspace(0, 1, 11)

#: Calibrators of the reliability diagrams of Figure A.14.
DIAGRAMS: tuple[calibration.Kind | None, ...] = (None, "linear", "isotonic")


def evaluate_self_awareness(inputs: RunInputs) -> SelfAwarenessResults:
    """Self-awareness of a run.

    Returns:
        settings: How the run was made self-aware.
        detector: The self-aware detector.
        values: lrp, lrp_loc, lrp_fp, lrp_fn, laece and idq on ID test images, and with the suffix
            `_t` on all shifted images together; tpr, tnr, balanced_accuracy: shares of ID test
            images accepted and of OOD images rejected, and their harmonic mean; daq: that of
            balanced_accuracy, idq and idq_t, None without shifted images.
        intervals: 95% intervals of all values.
        per_class: Class → metrics on ID test images.
        reliability, reliability_before: Reliability diagrams on ID test images, after and before
            calibration.
        reliabilities: Diagrams of the calibration split and the ID test split by calibrator
            (Figure A.14).
        splits: For each OOD split without known objects, and for `all` of them: AUROC, tpr, tnr and
            balanced_accuracy.
        images: Accepted and rejected images of the ID test split, and of each shifted and each OOD
            split.
        map_by_uncertainty: AP of ID and shifted images by bin of uncertainty (Figure 2).
        image_thresholds: Threshold and balanced accuracy by the rule that chose it (Table A.12).
        calibrated: Errors with each calibrator and without calibration (Table 5).
        ablation: Table 7.
        aggregates: AUROC by aggregate (Table 2).
        uncertainties: AUROC by uncertainty of detections and aggregate (Tables 3 and A.9 to A.11).
        accuracy: AP and LRP (Tables 6 and A.8).
        sweeps: Figure A.15.
        ious: Figure A.13.
        top_k: Figure 5 a and Table A.13.
        by_threshold: Figure 5 b and Table A.14.
        thresholds_on_test: LRP-optimal thresholds on ID test images (Figure A.16).

    Raises:
        DataError: a split is absent or wrong.
        ParameterError: the settings need pseudo-OOD images, and the benchmark has none.
    """
    run = SelfAwareRun(inputs)
    detector = run.detector
    clean = self_awareness.metrics(run.match(detector, run.clean), run.iou, run.protocol)
    values = run.quality(detector)
    return SelfAwarenessResults(
        settings=replace(run.awareness, image_threshold=run.image_threshold),
        detector=detector,
        values=values,
        **intervals.of_metrics(values, run.replicates(), run.images_of_shares()),
        per_class=clean["per_class"],
        reliability=Reliability(**clean["reliability"]),
        reliability_before=_reliability_before(run),
        reliabilities=_reliabilities(run),
        splits=_by_split(run),
        images=_by_images(run),
        map_by_uncertainty=_map_by_uncertainty(run),
        image_thresholds=_image_thresholds(run),
        calibrated=calibrator_errors(run),
        ablation=ablation(run),
        aggregates=image_aurocs_by_aggregate(run),
        uncertainties=uncertainties(run, inputs),
        accuracy=accuracy(run),
        sweeps=over_thresholds(run),
        ious=over_ious(run),
        top_k=over_dummy_detections(run),
        by_threshold=over_confidence_thresholds(run),
        thresholds_on_test=run.clean.lrp_thresholds(run.iou),
    )


def _reliability_before(run: SelfAwareRun) -> Reliability:
    """The reliability diagram of ID test images before calibration, no image rejected."""
    is_kept = run.clean.above(run.detector.confidence_thresholds)
    matched = run.clean.match(run.iou, is_kept)
    return Reliability(**self_awareness.reliability(matched.values(), run.protocol))


def _reliabilities(run: SelfAwareRun) -> dict[str, dict[str, CalibratedReliability]]:
    """Diagrams by split and calibrator, no image rejected (Figure A.14).

    The splits are the images that calibrators are fitted to, and ID test images.
    """
    images_by_split = {
        run.settings.calibration_split: run.calibration_images,
        run.settings.id_split: run.clean,
    }
    diagrams: dict[str, dict[str, CalibratedReliability]] = {name: {} for name in images_by_split}
    for kind in dict.fromkeys((*DIAGRAMS, run.awareness.calibrator)):
        detector = run.fit_calibrator(kind)
        for name, images in images_by_split.items():
            is_kept, confidence = detector.confidences(images.regions)
            matched = images.match(run.iou, is_kept, confidence)
            diagram = self_awareness.reliability(matched.values(), run.protocol)
            laece = value(run.means(matched, None)["laece"][0])
            diagrams[name][kind or "none"] = CalibratedReliability(**diagram, laece=laece)
    return diagrams


def _auroc(id_uncertainty: np.ndarray, ood_uncertainties: Iterable[np.ndarray]) -> float | None:
    """AUROC of ID images against the OOD images of several splits."""
    ood_uncertainty = np.concatenate([np.zeros(0), *ood_uncertainties])
    return ood.auroc(-id_uncertainty, -ood_uncertainty)


def _by_split(run: SelfAwareRun) -> dict[str, Any]:
    """Separation of ID test images from those of each OOD split, and of all of them."""
    id_uncertainty = run.uncertainty(run.clean)
    uncertainty_by_split = {name: run.uncertainty(images) for name, images in run.ood.items()}
    uncertainty_by_split[ALL_OOD] = np.concatenate([np.zeros(0), *uncertainty_by_split.values()])

    threshold = run.detector.image_threshold
    results: dict[str, Any] = {}
    for name, uncertainty in uncertainty_by_split.items():
        results[name] = {"auroc": _auroc(id_uncertainty, [uncertainty])}
        if threshold is not None:
            results[name] |= self_awareness.balanced_accuracy(
                -id_uncertainty, -uncertainty, -threshold
            )
    return results


def _by_images(run: SelfAwareRun) -> dict[str, AcceptedImages]:
    """Accepted and rejected images of each split."""
    ood_uncertainties = [run.uncertainty(images) for images in run.ood.values()]
    id_split = run.settings.id_split
    severity_by_split = {id_split: 0, **run.severities}
    preferred = _accepted_with_copies(run)

    results = {}
    for name, images in {id_split: run.clean, **run.shifted, **run.ood}.items():
        is_id = name in severity_by_split
        uncertainty = run.uncertainty(images)
        is_rejected = rejected(run.detector, images)
        # The uncertainty of images without detections exceeds the last bin, and counts there.
        counts, _ = np.histogram(np.minimum(uncertainty, 1.0), UNCERTAINTY_BINS)
        accepted = AcceptedImages(
            images=len(images.names),
            rejected_images=int(is_rejected.sum()),
            histogram=(counts / max(len(uncertainty), 1)).tolist(),
            examples=_examples(images, uncertainty, is_rejected, preferred if is_id else None),
        )
        if is_id:
            accepted.severity = severity_by_split[name]
            accepted.auroc = _auroc(uncertainty, ood_uncertainties)
            accepted.metrics = plain(run.measure(run.detector, images))
        results[name] = accepted
    return results


def _accepted_with_copies(run: SelfAwareRun) -> str | None:
    """The first accepted ID test image that is also in the first shifted split, if any."""
    if not run.shifted:
        return None
    first_shifted = run.shifted[min(run.shifted)]
    shifted_names = set(first_shifted.names)
    is_rejected = rejected(run.detector, run.clean)
    for name, rejects in zip(run.clean.names, is_rejected, strict=True):
        if name in shifted_names and not rejects:
            return name
    return None


def _examples(
    images: DetectedImages,
    uncertainty: np.ndarray,
    is_rejected: np.ndarray,
    preferred: str | None,
) -> list[ExampleImage]:
    """The first accepted image by name and the first rejected one; none is hand-picked.

    Args:
        images: I images.
        uncertainty: Uncertainty of each, ndarray of shape (I,).
        is_rejected: Whether it is rejected, ndarray of shape (I,), bool.
        preferred: An image that is chosen before the first one, so that corrupted copies of one
            image are beside it.
    """
    examples = []
    for rejects in (False, True):
        rows = np.flatnonzero(is_rejected == rejects).tolist()
        if not rows:
            continue
        row = rows[0]
        if preferred in images.names and images.names.index(preferred) in rows:
            row = images.names.index(preferred)
        example = ExampleImage(
            image_id=images.names[row], uncertainty=float(uncertainty[row]), is_rejected=rejects
        )
        examples.append(example)
    return examples


def _map_by_uncertainty(run: SelfAwareRun) -> list[float | None]:
    """AP of ID and shifted images in each bin of uncertainty; None without objects in the bin."""
    pooled = DetectedImages.pooled({"clean": run.clean, **run.shifted})
    names = np.array(pooled.names, dtype=object)
    bins = len(UNCERTAINTY_BINS) - 1
    uncertainty = np.minimum(run.uncertainty(pooled), 1.0)
    bin_of_image = np.searchsorted(UNCERTAINTY_BINS, uncertainty, side="right") - 1
    bin_of_image = np.minimum(bin_of_image, bins - 1)

    map_by_bin: list[float | None] = []
    for number in range(bins):
        names_in_bin = names[bin_of_image == number]
        objects = pooled.objects[is_among(pooled.objects.image_id, names_in_bin)]
        regions = pooled.regions[is_among(pooled.regions.image_id, names_in_bin)]
        if not len(objects):
            map_by_bin.append(None)
            continue
        matched = closed_set.ClosedSet.of(objects, regions).match(closed_set.COCO_IOUS)
        map_by_bin.append(mean_average_precision(matched)["map"])
    return map_by_bin


def _image_thresholds(run: SelfAwareRun) -> dict[str, Any]:
    """Image threshold and balanced accuracy by the rule that chose it."""
    results = {}
    for rule in get_args(ImageThreshold):
        if rule == "pseudo_ood" and run.pseudo_ood is None:
            continue
        detector = run.fit(None, rule)
        balanced = plain(run.balanced(detector))
        results[rule] = {"threshold": detector.image_threshold, **balanced}
    return results
