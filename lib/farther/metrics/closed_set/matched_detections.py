"""Detections of known classes, matched to objects at several IoU thresholds."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from farther.metrics.precision_recall import (
    IGNORED,
    TRUE,
    PrecisionRecallCurve,
    areas_of_classes,
    average_precision,
)
from farther.metrics.weighting import ImageWeights, RowWeights, ratio, row_weights

#: Recalls at which COCO samples the interpolated precision: 0.00, 0.01, …, 1.00.
RECALL_POINTS = 101


@dataclass(frozen=True)
class MatchedDetections:
    """Detections matched at each of T IoU thresholds.

    Args:
        kind: ndarray of shape (T, n), int8: `TRUE`, `FALSE` or `IGNORED`.
        place: ndarray of shape (n,): number of better-scored detections of the same image and
            class.
        score: ndarray of shape (n,): the detector's confidence.
        image: ndarray of shape (n,): index of the detection's image.
        bounds: ndarray of shape (K + 1,): class k has rows bounds[k] … bounds[k + 1], by falling
            score.
        object_class, object_image: Class and image of each object that is counted.
        images: Number of images.
    """

    kind: np.ndarray
    place: np.ndarray
    score: np.ndarray
    image: np.ndarray
    bounds: np.ndarray
    object_class: np.ndarray
    object_image: np.ndarray
    images: int

    @property
    def positives(self) -> np.ndarray:
        """Number of objects of each class, ndarray of shape (K,)."""
        return np.bincount(self.object_class, minlength=len(self.bounds) - 1)

    def rows(self, k: int) -> slice:
        """The detections of class k."""
        return slice(self.bounds[k], self.bounds[k + 1])

    def curve(self, threshold: int, k: int) -> PrecisionRecallCurve:
        """Precision and recall of a class, ignored detections left out.

        Args:
            threshold: Index of the IoU threshold.
            k: Index of the class.
        """
        return PrecisionRecallCurve.of(self.is_true(threshold, k), self.positives[k])

    def scores(self, threshold: int, k: int) -> np.ndarray:
        """Confidences of the detections on that curve."""
        rows = self.rows(k)
        is_ranked = self.kind[threshold, rows] != IGNORED
        return self.score[rows][is_ranked].astype(np.float64)

    def is_true(self, threshold: int, k: int) -> np.ndarray:
        """True positives among the detections on that curve, ndarray of bool."""
        kind = self.kind[threshold, self.rows(k)]
        return kind[kind != IGNORED] == TRUE

    @property
    def of_class(self) -> np.ndarray:
        """The class of each detection, ndarray of shape (n,)."""
        return np.repeat(np.arange(len(self.bounds) - 1), np.diff(self.bounds))

    def objects(self, weights: ImageWeights | None = None) -> np.ndarray:
        """Number of objects of each class in each replicate, ndarray of shape (K, B)."""
        rows = row_weights(weights, self.object_image, self.images)
        return rows.total_by_group(self.object_class, len(self.bounds) - 1)

    def detections(self, weights: ImageWeights | None = None) -> RowWeights:
        """Weights of the detections; see `metrics`."""
        return row_weights(weights, self.image, self.images)

    def average_precision(
        self, weights: ImageWeights | None = None, points: int | None = RECALL_POINTS
    ) -> np.ndarray:
        """Average precision, ndarray of shape (T, K, B); NaN for a class without objects.

        Args:
            weights: see `metrics`.
            points: see `farther.metrics.precision_recall.average_precision`; 101 as COCO does.
        """
        if weights is None:
            areas = [areas_of_classes(k, self.bounds, self.positives, points) for k in self.kind]
            return np.stack(areas)[..., None]

        objects = self.objects(weights)
        detections = self.detections(weights)
        result = np.full((len(self.kind), *objects.shape), np.nan)
        for k in np.flatnonzero(self.positives).tolist():
            rows = self.rows(k)
            result[:, k] = average_precision(
                self.kind[:, rows], objects[k], points, detections[rows]
            )
        return result

    def recall(
        self, weights: ImageWeights | None = None, max_detections: int | None = None
    ) -> np.ndarray:
        """Share of the objects found, ndarray of shape (T, K, B); NaN for a class without objects.

        Args:
            weights: see `metrics`.
            max_detections: Best-scored detections per image and class that count; all when None.
        """
        objects = self.objects(weights)
        detections = self.detections(weights)
        detected_class = self.of_class
        is_true = self.kind == TRUE
        if max_detections is not None:
            is_true &= self.place < max_detections
        true_positives = np.empty((len(self.kind), *objects.shape))
        for threshold, rows in enumerate(is_true):
            true_positives[threshold] = detections[rows].total_by_group(
                detected_class[rows], len(objects)
            )
        return ratio(true_positives, np.broadcast_to(objects, true_positives.shape))

    def above(self, score: float) -> MatchedDetections:
        """The same without the detections whose confidence is below `score`."""
        # Confidences are stored as float32, and compared as such wherever a threshold is applied.
        is_above = self.score >= np.float32(score)
        above_so_far = np.append(0, np.cumsum(is_above))
        return replace(
            self,
            kind=self.kind[:, is_above],
            place=self.place[is_above],
            score=self.score[is_above],
            image=self.image[is_above],
            bounds=above_so_far[self.bounds],
        )
