"""The threshold τ at which each object's outcome changes: a sweep over all values of τ at once.

A method flags the regions whose score is below τ. As τ rises more regions are flagged, and flagged
regions choose objects by falling confidence: one more of them never leaves an object without a
region that had one (Gale and Shapley, 1962, doi:10.2307/2312726). So an object that is found
remains found, and one that is not misclassified is never misclassified again; nor is a known object
detected again once it is lost.

Matching never crosses images, so τ may be another one in each image: there are as many matchings as
an image has different scores, however many images and thresholds there are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from farther.metrics.closed_set import ClosedSet
from farther.metrics.open_set.outcomes import FOUND, MISCLASSIFIED, OpenSetSplit
from farther.tables.arguments import floats, instance, number


@dataclass(frozen=True)
class UnknownObjects:
    """Thresholds at which each of M objects of a split is misclassified or found.

    Args:
        misclassified_to: ndarray of shape (M,): misclassified at each τ up to this one; −∞ for
            never.
        found_above: ndarray of shape (M,): found at each τ above this one; ∞ for never.
        image: Index of each object's image in `OpenSetSplit.images`.
        counted: Objects that are counted: unknown, and no crowd.
    """

    misclassified_to: np.ndarray
    found_above: np.ndarray
    image: np.ndarray
    counted: np.ndarray


def unknown_objects(split: OpenSetSplit, scores: np.ndarray) -> UnknownObjects:
    """The thresholds at which the outcomes of unknown objects change.

    Args:
        split: The split's objects, and its N regions at or above t*.
        scores: A method's score of each region, ndarray of shape (N,).

    >>> from farther.tables import Objects, Regions
    >>> fox = [0, 0, 10, 10]
    >>> objects = Objects(image_id=["a"], object_id=[0], box=[fox], category=["fox"])
    >>> regions = Regions(
    ...     image_id=["a"],
    ...     region_id=[0],
    ...     box=[fox],
    ...     score=[0.9],
    ...     label=[0],
    ...     logits=[[2.0]],
    ...     classes=("cat",),
    ... )
    >>> outcomes = unknown_objects(OpenSetSplit.of(objects, regions), np.array([0.7]))
    >>> outcomes.misclassified_to.tolist(), outcomes.found_above.tolist()
    ([0.7], [0.7])
    """
    instance(split, OpenSetSplit, "split")
    scores = floats(scores, "scores", shape=split.detections.rank.shape)
    is_on_unknown = split.on_unknown
    on_unknown = split.keeping(is_on_unknown)
    steps = _ScoreSteps.of(
        on_unknown.detections.image,
        scores[is_on_unknown],
        len(split.images),
    )

    image = split.object_image
    misclassified_to = np.full(len(image), -np.inf)
    found_above = np.full(len(image), np.inf)
    for k in range(steps.levels.shape[1]):
        # The outcome at any τ above level k − 1, up to level k.
        outcome = on_unknown.match(steps.step < k).of_object
        is_misclassified = outcome == MISCLASSIFIED
        misclassified_to[is_misclassified] = steps.levels[image[is_misclassified], k]
        is_newly_found = (outcome == FOUND) & np.isinf(found_above)
        found_above[is_newly_found] = steps.levels[image[is_newly_found], k - 1]
    return UnknownObjects(misclassified_to, found_above, image, split.is_counted)


@dataclass(frozen=True)
class KnownObjects:
    """Largest τ at which a region that is kept detects each object of a known class as its class.

    Args:
        detected_to: One threshold per object that is counted; −∞ for never.
        image: Index of each object's image in `ClosedSet.images`.
    """

    detected_to: np.ndarray
    image: np.ndarray


def known_objects(closed: ClosedSet, scores: np.ndarray, iou: float = 0.5) -> KnownObjects:
    """The thresholds at which objects of known classes are lost.

    Args:
        closed: Objects of known classes, and the N regions at or above t*.
        scores: A method's score of each region, ndarray of shape (N,).
        iou: Smallest IoU of a detection and its object.
    """
    instance(closed, ClosedSet, "closed")
    scores = floats(scores, "scores")
    iou = number(iou, "iou", above=0, at_most=1)
    pairs = closed.pairs
    if iou < closed.smallest_overlap:
        pairs = closed.pairs_over(iou)
    is_on_object = np.zeros(len(scores), dtype=bool)
    is_on_object[closed.detections.row[pairs.region]] = True

    on_object = closed.detections[is_on_object[closed.detections.row]]
    row_scores = scores[on_object.row]
    steps = _ScoreSteps.of(on_object.image, row_scores, len(closed.images))
    step_of_region = np.full(len(scores), -1)
    step_of_region[on_object.row] = steps.step

    detected_to = np.full(len(closed.object_row), -np.inf)
    for k in range(steps.levels.shape[1] - 1):
        kept = closed.keeping(step_of_region >= k)
        target = next(kept.assigned([iou], closed.is_ignored))
        matched = target[target >= 0]
        detected_to[matched] = steps.levels[closed.object_image[matched], k]
    is_counted = closed.counted()
    return KnownObjects(detected_to[is_counted], closed.object_image[is_counted])


@dataclass(frozen=True)
class _ScoreSteps:
    """The different scores of each image, and which of them each region has.

    Args:
        step: Position of each region's score among those of its image, from 0, ndarray of shape
            (N,).
        levels: The different scores of each image, ascending, filled up with ∞, ndarray of shape
            (images, K + 1) for at most K of them.
    """

    step: np.ndarray
    levels: np.ndarray

    @classmethod
    def of(cls, image: np.ndarray, scores: np.ndarray, images: int) -> _ScoreSteps:
        """The steps of N regions.

        Args:
            image: Index of each region's image, ndarray of shape (N,).
            scores: ndarray of shape (N,), float64.
            images: Number of images.
        """
        order = np.lexsort((scores, image))
        sorted_image = image[order]
        sorted_score = scores[order]
        # Numbers go on from image to image; the first number of each image is subtracted below.
        number = np.zeros(len(order), dtype=np.int64)
        number[1:] = np.cumsum(sorted_score[1:] != sorted_score[:-1])
        first_number = np.zeros(images, dtype=np.int64)
        if len(number):
            first_row = np.searchsorted(sorted_image, np.arange(images))
            first_number = number[np.minimum(first_row, len(number) - 1)]
        sorted_step = number - first_number[sorted_image]

        step = np.empty(len(order), dtype=np.int64)
        step[order] = sorted_step
        levels = np.full((images, int(sorted_step.max(initial=-1)) + 2), np.inf)
        levels[sorted_image, sorted_step] = sorted_score
        return cls(step, levels)
