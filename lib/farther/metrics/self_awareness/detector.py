"""A detector made self-aware: it accepts or rejects images, and calibrates its confidences.

Of an accepted image it keeps the detections above a threshold. Source: Oksuz et al., CVPR 2023,
arXiv:2307.00934, Algorithms A.1 and A.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
from pydantic import Field, StrictFloat, TypeAdapter
from pydantic.dataclasses import dataclass

from farther.errors import ParameterError
from farther.metrics.matching import above_of_class
from farther.metrics.matching.boxes import is_among
from farther.metrics.self_awareness import calibration, image_uncertainty
from farther.metrics.self_awareness.images import DetectedImages
from farther.metrics.self_awareness.matches import TRUE_POSITIVE_IOU
from farther.naming.registry import Parameters
from farther.tables import Regions

#: Source of the image threshold: pseudo-OOD images, or the threshold at which 95% of the ID
#: validation images are accepted.
ImageThreshold = Literal["pseudo_ood", "keep_95"]

#: ID validation images that thresholds and calibrators are fitted to: those that show an object, or
#: all.
LearntFrom = Literal["with_objects", "all"]

#: Choice of the confidence thresholds: the LRP-optimal one of each class, or 0.5 for all.
ConfidenceThreshold = Literal["lrp_optimal", "half"]


@dataclass(frozen=True, config=calibration.STORED)
class SelfAwareDetector(Parameters):
    """Thresholds and calibrators that make a detector self-aware.

    Args:
        confidence_thresholds: Smallest confidence of a detection by class; None where no detection
            is kept.
        calibrators: By class; empty without calibration.
        image_threshold: Largest uncertainty of an image that is accepted; None accepts every image.
        aggregate: Aggregate of the uncertainties of an image's detections; see
            `farther.metrics.self_awareness.image_uncertainty.aggregate`.
    """

    confidence_thresholds: dict[str, StrictFloat | None]
    calibrators: dict[str, calibration.Calibrator] = Field(default_factory=dict)
    image_threshold: StrictFloat | None = None
    aggregate: str = "top-3"

    @classmethod
    def fit(
        cls,
        validation: DetectedImages,
        pseudo_ood: DetectedImages | None = None,
        *,
        calibrator: calibration.Kind | None = "linear",
        image_threshold: ImageThreshold = "pseudo_ood",
        confidence_threshold: ConfidenceThreshold = "lrp_optimal",
        aggregate: str = "top-3",
        iou: float = TRUE_POSITIVE_IOU,
        learnt_from: LearntFrom = "with_objects",
    ) -> SelfAwareDetector:
        """Algorithm A.1, from ID validation data.

        Args:
            validation: All ID validation images.
            pseudo_ood: Those images with their objects blanked out.
            calibrator: Kind of the calibrators; None for none.
            image_threshold: "pseudo_ood" or "keep_95"; the former counts ID images with objects
                only.
            confidence_threshold: "lrp_optimal" or "half".
            aggregate: See the class.
            iou: Smallest IoU of a true positive.
            learnt_from: Images that confidence thresholds and calibrators come from; Algorithm A.1
                has "with_objects".

        Raises:
            ParameterError: "pseudo_ood" without such images, or an unknown kind.
        """
        if image_threshold not in get_args(ImageThreshold):
            known = ", ".join(get_args(ImageThreshold))
            raise ParameterError(f"unknown image threshold {image_threshold!r}. Known: {known}")
        if image_threshold == "pseudo_ood" and pseudo_ood is None:
            raise ParameterError(
                "image threshold 'pseudo_ood' needs pseudo-OOD images; without them use 'keep_95'"
            )
        images = validation if learnt_from == "all" else validation.with_objects
        thresholds: dict[str, float | None]
        if confidence_threshold == "half":
            thresholds = dict.fromkeys(validation.regions.header.known_classes, 0.5)
        else:
            thresholds = images.lrp_thresholds(iou)

        calibrators: dict[str, calibration.Calibrator] = {}
        if calibrator is not None:
            matched = images.match(iou, images.above(thresholds))
            calibrators = calibration.of_matched(calibrator, matched)

        uncertainty = validation.uncertainty(aggregate)
        if image_threshold == "keep_95" or pseudo_ood is None:
            level = image_uncertainty.threshold_accepting(uncertainty)
        else:
            pseudo_ood_uncertainty = pseudo_ood.uncertainty(aggregate)
            level = image_uncertainty.best_threshold(
                uncertainty[validation.shows_object], pseudo_ood_uncertainty
            )
        return cls(thresholds, calibrators, level, aggregate)

    def uncertainty(self, regions: Regions, images: Sequence[str]) -> np.ndarray:
        """Uncertainty of each image, ndarray of shape (len(images),)."""
        return image_uncertainty.of_confidence(regions, images, self.aggregate)

    def rejected(self, regions: Regions, images: Sequence[str]) -> list[str]:
        """The images that are not accepted, in their order."""
        if self.image_threshold is None:
            return []
        threshold = self.image_threshold
        uncertainty = self.uncertainty(regions, images).tolist()
        by_image = zip(images, uncertainty, strict=True)
        return [name for name, of_image in by_image if of_image > threshold]

    def detections(self, regions: Regions) -> Regions:
        """The detections above their thresholds, with calibrated confidences.

        Those of accepted and rejected images alike.
        """
        is_above, score = self.confidences(regions)
        return regions.with_columns(score=score)[is_above]

    def confidences(self, regions: Regions) -> tuple[np.ndarray, np.ndarray]:
        """The regions above their thresholds, and the calibrated confidences of all regions.

        Returns:
            ndarrays of shape (N,), bool and float32.
        """
        is_above = above_of_class(regions, self.confidence_thresholds)
        return is_above, calibration.confidences(self.calibrators, regions)

    def __call__(self, regions: Regions, images: Sequence[str]) -> tuple[Regions, list[str]]:
        """Algorithm A.2: the detections of the accepted images, and the rejected images."""
        rejected = self.rejected(regions, images)
        accepted = regions[~is_among(regions.image_id, rejected)]
        return self.detections(accepted), rejected

    def to_json(self) -> dict[str, Any]:
        """All values, as JSON holds them."""
        values: dict[str, Any] = TypeAdapter(SelfAwareDetector).dump_python(self)
        return values

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> SelfAwareDetector:
        """Inverse of `to_json`.

        Raises:
            ParameterError: a value is missing, unknown or of another type; names it.
        """
        return cls(**values)
