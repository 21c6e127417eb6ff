"""Detections matched to objects for the metrics of `farther.metrics.self_awareness`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from farther.metrics.closed_set import ClosedSet
from farther.metrics.matching.boxes import overlaps
from farther.metrics.precision_recall import IGNORED, TRUE
from farther.tables import Objects, Regions
from farther.tables.arguments import number

#: τ: smallest IoU of a true positive of the right class.
TRUE_POSITIVE_IOU = 0.1


@dataclass(frozen=True)
class ClassMatches:
    """Detections of one class by falling confidence, ignored ones left out, and its objects.

    Args:
        score: Confidences, ndarray of shape (n,).
        quality: IoU with the object that was matched, 0 for a false positive, ndarray of shape
            (n,).
        is_true: ndarray of shape (n,), bool.
        image: Index of each detection's image among the images, ndarray of shape (n,).
        object_image: The same of each object, ndarray of shape (positives,).
    """

    score: np.ndarray
    quality: np.ndarray
    is_true: np.ndarray
    image: np.ndarray
    object_image: np.ndarray

    @property
    def positives(self) -> int:
        """Number of objects."""
        return len(self.object_image)


class MatchesByClass(dict[str, ClassMatches]):
    """The matched detections of each class, by its name.

    Args:
        images: Names of the images that have detections or objects, sorted, ndarray of shape (I,).
    """

    def __init__(self, images: np.ndarray):
        super().__init__()
        self.images = images


def match(
    objects: Objects,
    regions: Regions,
    classes: Sequence[str] | None = None,
    iou: float = TRUE_POSITIVE_IOU,
) -> MatchesByClass:
    """Detections of each class matched to its objects.

    Args:
        objects: Ground truth.
        regions: Detections in the same images.
        classes: Names of the known classes; those of `regions` without the background when None.
        iou: Smallest overlap of a detection and its object.

    Raises:
        DataError: see `farther.metrics.self_awareness.evaluate`.
        ParameterError: the IoU is not above 0 and below 1.
    """
    iou = number(iou, "iou", above=0, below=1)
    return of_closed_set(ClosedSet.of(objects, regions, classes, smallest_overlap=iou), iou)


def of_closed_set(
    known: ClosedSet, iou: float, excused: np.ndarray | None = None
) -> MatchesByClass:
    """As `match`, of objects and detections whose overlaps are known.

    Args:
        known: Objects and detections.
        iou: Smallest overlap of a detection and its object.
        excused: Images whose objects do not count, among `known.images`, ndarray of shape (I,),
            bool.
    """
    matched, target = known.match_once(iou)
    quality = np.zeros(len(target))
    has_object = target >= 0
    detection_box = known.boxes[known.detections.row[has_object]]
    quality[has_object] = overlaps(detection_box, known.object_box[target[has_object]])

    is_counted_object = np.ones(len(matched.object_image), dtype=bool)
    if excused is not None:
        is_counted_object = ~excused[matched.object_image]

    matches = MatchesByClass(known.images)
    for k, name in enumerate(known.classes):
        rows = matched.rows(k)
        kind = matched.kind[0, rows]
        is_ranked = kind != IGNORED
        is_true = kind[is_ranked] == TRUE
        is_object_of_class = (matched.object_class == k) & is_counted_object
        matches[name] = ClassMatches(
            score=matched.score[rows][is_ranked].astype(np.float64),
            quality=np.where(is_true, quality[rows][is_ranked], 0.0),
            is_true=is_true,
            image=known.detections.image[rows][is_ranked],
            object_image=matched.object_image[is_object_of_class],
        )
    return matches
