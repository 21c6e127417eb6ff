"""Self-awareness of a run (Oksuz et al., CVPR 2023, arXiv:2307.00934, Section 6).

A self-aware run accepts or rejects images, and its detections are accurate and calibrated on clean
and on shifted images. Its confidence thresholds, calibrators and image threshold are chosen on the
calibration split and its pseudo-OOD images.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from farther.evaluation.files import RunSplit
from farther.evaluation.inputs import RunInputs
from farther.metrics import self_awareness
from farther.metrics.self_awareness import calibration
from farther.metrics.self_awareness.detector import (
    ConfidenceThreshold,
    ImageThreshold,
    SelfAwareDetector,
)
from farther.metrics.self_awareness.images import DetectedImages
from farther.metrics.self_awareness.matches import MatchesByClass
from farther.metrics.statistics.bootstrap import ImageDraws
from farther.metrics.weighting import ImageWeights, plain, ratio
from farther.terms import Protocol

#: Key of all OOD splits together, beside their names: no name has a space.
ALL_OOD = "all OOD"

#: Shifted images of this severity or more may be rejected without loss (Section 6: 5 of 1, 3 and
#: 5).
MAY_REJECT = 5


def images_of(split: RunSplit, severity: int = 0) -> DetectedImages:
    """The images of one split.

    Args:
        split: The split.
        severity: Severity of its shift; 0 for clean images.
    """
    names = tuple(sorted(split.images))
    may_reject: frozenset[str] = frozenset()
    if severity >= MAY_REJECT:
        may_reject = frozenset(names)
    return DetectedImages(split.objects, split.regions(), names, names, may_reject)


def rejected(detector: SelfAwareDetector, images: DetectedImages) -> np.ndarray:
    """Whether a detector rejects each of I images, ndarray of shape (I,), bool."""
    if detector.image_threshold is None:
        return np.zeros(len(images.names), dtype=bool)
    return images.uncertainty(detector.aggregate) > detector.image_threshold


@dataclass(frozen=True)
class RunDraws:
    """Draws of the images of a run, by their roles.

    Args:
        clean: Of the ID test split.
        ood: Of each OOD split without known objects, by its name.
        shifted: Of the originals of shifted images, so that all severities stay together; None
            without shifted splits.
    """

    clean: ImageDraws
    ood: Mapping[str, ImageDraws]
    shifted: ImageDraws | None


@dataclass(frozen=True)
class _JudgedImages:
    """Images that a detector accepts or rejects.

    Args:
        names: Of I images.
        is_right: Whether each is treated as it should be, ndarray of shape (I,), bool.
        draws: Draws of them; each counts once when None.
    """

    names: Sequence[str]
    is_right: np.ndarray
    draws: ImageDraws | None


class SelfAwareRun:
    """The splits of a run in the roles that self-awareness gives them.

    Args:
        inputs: The run's inputs.

    Attributes:
        held_out: Images of the calibration split.
        clean: Images of the ID test split.
        ood: Images of each OOD split without known objects.
        shifted, shifted_val: Images of each shifted split of ID test and of ID validation images.
        severities: Severity of each shifted split.
        pooled: All shifted test images together; None without shifted splits.
        pseudo_ood: Pseudo-OOD images; None without them.
        image_threshold: How the image threshold is chosen.
    """

    def __init__(self, inputs: RunInputs):
        self.settings = inputs.settings
        self.awareness = inputs.settings.self_awareness
        roles = inputs.roles

        def read(name: str, severity: int = 0) -> DetectedImages:
            return images_of(RunSplit(inputs.files, name), severity)

        self.held_out = read(self.settings.calibration_split)
        self.clean = images_of(inputs.id_split)
        # An image with an object of a known class is to be accepted, whatever else it shows.
        self.ood = {
            split.name: images_of(split) for split in inputs.tested if not split.shows_known
        }
        self.severities = dict(roles.shifted)
        self.shifted = {name: read(name, level) for name, level in self.severities.items()}
        self.shifted_val = {name: read(name) for name in roles.shifted_val}
        self.pooled = DetectedImages.pooled(self.shifted) if self.shifted else None
        self.pseudo_ood = read(roles.pseudo_ood) if roles.pseudo_ood else None
        self.image_threshold: ImageThreshold = self._image_threshold()
        self._calibrated: dict[calibration.Kind | None, SelfAwareDetector] = {}

    def _image_threshold(self) -> ImageThreshold:
        if self.awareness.image_threshold is not None:
            return self.awareness.image_threshold
        if self.pseudo_ood is not None:
            return "pseudo_ood"
        return "keep_95"

    @property
    def iou(self) -> float:
        """Smallest IoU of a true positive."""
        return self.awareness.iou

    @property
    def protocol(self) -> Protocol:
        """The protocol of the evaluation."""
        return self.settings.protocol

    def fit(
        self,
        calibrator: calibration.Kind | None,
        image_threshold: ImageThreshold,
        confidence_threshold: ConfidenceThreshold = "lrp_optimal",
    ) -> SelfAwareDetector:
        """The run made self-aware (Algorithm A.1)."""
        return SelfAwareDetector.fit(
            self.held_out,
            self.pseudo_ood,
            calibrator=calibrator,
            image_threshold=image_threshold,
            confidence_threshold=confidence_threshold,
            aggregate=self.awareness.aggregate,
            iou=self.iou,
        )

    @property
    def calibration_images(self) -> DetectedImages:
        """ID validation images that calibrators are fitted to where they are compared (Table 5).

        They are those with objects, or all under the published protocol.
        """
        if self.protocol == "published-code":
            return self.held_out
        return self.held_out.with_objects

    def fit_calibrator(self, calibrator: calibration.Kind | None) -> SelfAwareDetector:
        """The run calibrated as in Section 5 and Table 5, where no image is rejected.

        It is fitted once: several tables show it.
        """
        if calibrator not in self._calibrated:
            self._calibrated[calibrator] = SelfAwareDetector.fit(
                self.calibration_images,
                calibrator=calibrator,
                image_threshold="keep_95",
                aggregate=self.awareness.aggregate,
                iou=self.iou,
                learnt_from="all",
            )
        return self._calibrated[calibrator]

    @cached_property
    def detector(self) -> SelfAwareDetector:
        """The run made self-aware by its settings."""
        return self.fit(self.awareness.calibrator, self.image_threshold)

    def uncertainty(self, images: DetectedImages) -> np.ndarray:
        """Uncertainty of each of I images, ndarray of shape (I,)."""
        return images.uncertainty(self.detector.aggregate)

    @cached_property
    def draws(self) -> RunDraws | None:
        """Draws of the images; None without replicates."""
        settings = self.settings
        clean = settings.draws(self.clean.names)
        if clean is None:
            return None

        ood = {}
        for name, images in self.ood.items():
            draws = settings.draws(images.names)
            if draws is not None:
                ood[name] = draws
        shifted = None
        if self.pooled is not None:
            shifted = settings.draws(self.pooled.original)
        return RunDraws(clean, ood, shifted)

    def match(self, detector: SelfAwareDetector, images: DetectedImages) -> MatchesByClass:
        """Matched detections in accepted images."""
        is_kept, confidence = detector.confidences(images.regions)
        return images.match(self.iou, is_kept, confidence, rejected(detector, images))

    def measure(
        self, detector: SelfAwareDetector, images: DetectedImages, draws: ImageDraws | None = None
    ) -> dict[str, np.ndarray]:
        """Metrics of the detections in accepted images.

        Returns:
            ndarrays of shape (B,), or (1,) without draws; see `means`.
        """
        matched = self.match(detector, images)
        if draws is None:
            return self.means(matched, None)
        original_by_image = dict(zip(images.names, images.original, strict=True))
        originals = np.array([original_by_image[name] for name in matched.images], dtype=object)
        return self.means(matched, draws.of(originals))

    def means(
        self, matched: MatchesByClass, weights: ImageWeights | None, iou: float | None = None
    ) -> dict[str, np.ndarray]:
        """LRP, LaECE and IDQ of matched detections; see `farther.metrics.self_awareness.by_class`.

        Args:
            matched: Detections that were matched at `iou`.
            weights: Weights of the images; each counts once when None.
            iou: Smallest IoU of a true positive; that of the settings when None.
        """
        metrics_by_class = self_awareness.by_class(matched, iou or self.iou, self.protocol, weights)
        return self_awareness.means(metrics_by_class)

    def balanced(self, detector: SelfAwareDetector, *, replicates: bool = False) -> dict[str, Any]:
        """Balanced accuracy of accepting ID test images and rejecting OOD images of all splits.

        Returns:
            tpr, the share of ID images accepted, tnr, the share of OOD images rejected, and their
            harmonic mean balanced_accuracy: ndarrays of shape (1,), or (B,) with replicates.
        """
        draws = self.draws if replicates else None
        clean_draws = None if draws is None else draws.clean
        clean = _JudgedImages(self.clean.names, ~rejected(detector, self.clean), clean_draws)
        ood = []
        for name, images in self.ood.items():
            ood_draws = None if draws is None else draws.ood[name]
            ood.append(_JudgedImages(images.names, rejected(detector, images), ood_draws))
        tpr = _share_of_right([clean])
        tnr = _share_of_right(ood)
        balanced_accuracy = self_awareness.harmonic_mean(tpr, tnr)
        return {"tpr": tpr, "tnr": tnr, "balanced_accuracy": balanced_accuracy}

    def images_of_shares(self) -> dict[str, int]:
        """Number of the images that `tpr` and `tnr` are shares of."""
        ood = sum(len(images.names) for images in self.ood.values())
        return {"tpr": len(self.clean.names), "tnr": ood}

    def quality(self, detector: SelfAwareDetector) -> dict[str, Any]:
        """DAQ and its parts (Table 6), with the suffix `_t` for shifted images.

        Without shifted images, and without OOD images, DAQ is None.
        """
        quality = plain(self.balanced(detector))
        quality |= _with_suffix(plain(self.measure(detector, self.clean)), "")
        if self.pooled is not None:
            quality |= _with_suffix(plain(self.measure(detector, self.pooled)), "_t")

        parts = [quality.get(name) for name in ("balanced_accuracy", "idq", "idq_t")]
        quality["daq"] = None
        if None not in parts:
            quality["daq"] = float(self_awareness.harmonic_mean(*parts))
        return quality

    def replicates(self) -> dict[str, np.ndarray]:
        """Replicates of `quality` for the run made self-aware by its settings.

        {} without replicates.
        """
        if self.draws is None:
            return {}
        quality = self.balanced(self.detector, replicates=True)
        clean = self.measure(self.detector, self.clean, self.draws.clean)
        quality |= _with_suffix(clean, "")
        if self.pooled is not None:
            shifted = self.measure(self.detector, self.pooled, self.draws.shifted)
            quality |= _with_suffix(shifted, "_t")
            quality["daq"] = self_awareness.harmonic_mean(
                quality["balanced_accuracy"], quality["idq"], quality["idq_t"]
            )
        return quality


def _share_of_right(sides: Sequence[_JudgedImages]) -> Any:
    """Share of the images of several sides together that are treated as they should be."""
    right = np.zeros(1)
    total = np.zeros(1)
    for side in sides:
        if side.draws is None:
            right = right + side.is_right.sum()
            total = total + len(side.is_right)
        else:
            weights = side.draws.of(np.array(side.names, dtype=object))
            right = right + weights @ side.is_right
            total = total + weights @ np.ones(len(side.is_right), dtype=np.int64)
    return ratio(right, total)


def _with_suffix(values: Mapping[str, Any], suffix: str) -> dict[str, Any]:
    """The parts of LRP, LaECE and IDQ, with a suffix to their names."""
    renamed = {}
    for name in (*self_awareness.PARTS, "idq"):
        if name in values:
            renamed[f"{name}{suffix}"] = values[name]
    return renamed
