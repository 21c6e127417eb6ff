"""Self-awareness of a run (Oksuz et al., CVPR 2023, arXiv:2307.00934, Section 6): which images it accepts, and how
accurate and calibrated its detections are on clean and on shifted images.

Everything that is chosen is chosen on the calibration split and its pseudo-OOD images: confidence
thresholds, calibrators, and the image threshold.
"""

from __future__ import annotations

from collections.abc import Mapping
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

#: Shifted images of this severity or more may be rejected without loss (Section 6: 5 of 1, 3 and
#: 5).
MAY_REJECT = 5


def images_of(split: RunSplit, severity: int = 0) -> DetectedImages:
    """The images of one split."""
    names = tuple(sorted(split.images))
    return DetectedImages(
        split.objects,
        split.regions(),
        names,
        names,
        frozenset(names if severity >= MAY_REJECT else ()),
    )


def rejected(detector: SelfAwareDetector, images: DetectedImages) -> np.ndarray:
    """DetectedImages that a detector does not accept, ndarray of shape (I,), bool."""
    level = np.inf if detector.image_threshold is None else detector.image_threshold
    return images.uncertainty(detector.aggregate) > level


class SelfAwareRun:
    """The splits of a run as self-awareness sees them, and what several of its metrics share."""

    def __init__(self, inputs: RunInputs):
        self.settings = inputs.settings
        self.asked = inputs.settings.self_awareness
        roles = inputs.roles
        self.held_out = images_of(RunSplit(inputs.files, self.settings.calibration_split))
        self.clean = images_of(inputs.id_split)
        # An image with an object of a known class is to be accepted, whatever else it shows.
        self.ood = {
            split.name: images_of(split) for split in inputs.tested if not split.shows_known
        }
        self.severities = dict(roles.shifted)
        self.shifted = {
            name: images_of(RunSplit(inputs.files, name), s) for name, s in self.severities.items()
        }
        self.pseudo = (
            images_of(RunSplit(inputs.files, roles.pseudo_ood)) if roles.pseudo_ood else None
        )
        self.shifted_val = {
            name: images_of(RunSplit(inputs.files, name)) for name in roles.shifted_val
        }
        self.pooled = DetectedImages.pooled(self.shifted) if self.shifted else None
        self.image_threshold: ImageThreshold = self.asked.image_threshold or (
            "pseudo_ood" if self.pseudo else "keep_95"
        )

    def fit(
        self,
        calibrator: calibration.Kind | None,
        image_threshold: ImageThreshold,
        confidence_threshold: ConfidenceThreshold = "lrp_optimal",
    ) -> SelfAwareDetector:
        """The run made self-aware (Algorithm A.1)."""
        return SelfAwareDetector.fit(
            self.held_out,
            self.pseudo,
            calibrator=calibrator,
            image_threshold=image_threshold,
            confidence_threshold=confidence_threshold,
            aggregate=self.asked.aggregate,
            iou=self.asked.iou,
        )

    @property
    def calibration_images(self) -> DetectedImages:
        """ID validation images that calibrators are compared after learning from (Table 5): those with objects, or all
        under the published protocol.
        """
        if self.settings.protocol == "published-code":
            return self.held_out
        return self.held_out.with_objects

    def fit_calibrator(self, calibrator: calibration.Kind | None) -> SelfAwareDetector:
        """The run calibrated as in Section 5 and Table 5, where no image is rejected."""
        return SelfAwareDetector.fit(
            self.calibration_images,
            calibrator=calibrator,
            image_threshold="keep_95",
            aggregate=self.asked.aggregate,
            iou=self.asked.iou,
            learnt_from="all",
        )

    @cached_property
    def detector(self) -> SelfAwareDetector:
        """The run made self-aware as asked for."""
        return self.fit(self.asked.calibrator, self.image_threshold)

    @cached_property
    def draws(self) -> dict[str, ImageDraws]:
        """Draws of the images: `clean`, `shifted` (of the originals, so that severities stay together), OOD splits."""
        settings = self.settings
        if not settings.replicates:
            return {}
        names = {
            "clean": self.clean.names,
            **{name: images.names for name, images in self.ood.items()},
        }
        if self.pooled:
            names["shifted"] = self.pooled.original
        return {
            name: ImageDraws(images, settings.replicates, settings.seed, settings.drawn_images)
            for name, images in names.items()
        }

    def match(
        self, detector: SelfAwareDetector, images: DetectedImages, iou: float | None = None
    ) -> MatchesByClass:
        """Matched detections in accepted images."""
        kept, score = detector.confidences(images.regions)
        return images.match(iou or self.asked.iou, kept, score, rejected(detector, images))

    def measure(
        self, detector: SelfAwareDetector, images: DetectedImages, draws: ImageDraws | None = None
    ) -> dict[str, np.ndarray]:
        """Metrics of the detections in accepted images, ndarrays of shape (B,), or (1,) without draws."""
        matched = self.match(detector, images)
        if draws is None:
            return self.means(matched, None)
        original = dict(zip(images.names, images.original, strict=True))
        return self.means(
            matched, draws.of(np.array([original[name] for name in matched.images], dtype=object))
        )

    def means(
        self, matched: MatchesByClass, weights: ImageWeights | None, iou: float | None = None
    ) -> dict[str, np.ndarray]:
        """LRP, LaECE and IDQ of matched detections; see `farther.metrics.self_awareness.by_class`.

        Args:
            matched: Detections that were matched at `iou`.
            weights: Of the images; each counts once when None.
            iou: Smallest IoU of a true positive; that of the settings when None.
        """
        of_classes = self_awareness.by_class(
            matched, iou or self.asked.iou, self.settings.protocol, weights
        )
        return self_awareness.means(of_classes)

    def balanced(self, detector: SelfAwareDetector, *, replicates: bool = False) -> dict[str, Any]:
        """Balanced accuracy of accepting ID test images and rejecting those of all OOD splits together."""
        sides = {}
        for side, parts in (("tpr", {"clean": self.clean}), ("tnr", self.ood)):
            correct, total = np.zeros(1), np.zeros(1)
            for name, images in parts.items():
                refused = rejected(detector, images)
                right = refused if side == "tnr" else ~refused
                weights = (
                    self.draws[name].of(np.array(images.names, dtype=object))
                    if replicates
                    else None
                )
                correct = correct + (right.sum() if weights is None else weights @ right)
                total = total + (
                    len(right) if weights is None else weights @ np.ones(len(right), dtype=np.int64)
                )
            sides[side] = ratio(correct, total)
        return {
            **sides,
            "balanced_accuracy": self_awareness.harmonic_mean(sides["tpr"], sides["tnr"]),
        }

    def quality(self, detector: SelfAwareDetector) -> dict[str, Any]:
        """DAQ and its parts (Table 6), `_t` for shifted images; without those, and without OOD images, no DAQ."""
        clean = plain(self.measure(detector, self.clean))
        shifted = plain(self.measure(detector, self.pooled)) if self.pooled else {}
        found = {**plain(self.balanced(detector)), **_named(clean, ""), **_named(shifted, "_t")}
        parts = [found.get(name) for name in ("balanced_accuracy", "idq", "idq_t")]
        known = [part for part in parts if part is not None]
        return {
            **found,
            "daq": float(self_awareness.harmonic_mean(*known))
            if len(known) == len(parts)
            else None,
        }

    def replicates(self) -> dict[str, np.ndarray]:
        """Replicates of what `quality` gives for the run made self-aware as asked for."""
        clean = self.measure(self.detector, self.clean, self.draws["clean"])
        found = {**self.balanced(self.detector, replicates=True), **_named(clean, "")}
        if self.pooled:
            shifted = self.measure(self.detector, self.pooled, self.draws["shifted"])
            found |= _named(shifted, "_t")
            parts = (found["balanced_accuracy"], found["idq"], found["idq_t"])
            found["daq"] = self_awareness.harmonic_mean(*parts)
        return found


def _named(values: Mapping[str, Any], suffix: str) -> dict[str, Any]:
    return {
        f"{name}{suffix}": values[name] for name in (*self_awareness.PARTS, "idq") if name in values
    }
