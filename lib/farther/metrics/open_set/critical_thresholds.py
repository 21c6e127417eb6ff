"""The threshold τ at which the outcome of each object changes: a sweep over all values of τ at once.

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


@dataclass(frozen=True)
class UnknownObjects:
    """When each of M objects of a split is misclassified or found.

    Args:
        misclassified_to: ndarray of shape (M,): misclassified at each τ up to this one; −∞ for
            never.
        found_above: ndarray of shape (M,): found at each τ above this one; ∞ for never.
        image: Place of each object's image in `OpenSetSplit.images`.
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
    >>> found = unknown_objects(OpenSetSplit.of(objects, regions), np.array([0.7]))
    >>> found.misclassified_to.tolist(), found.found_above.tolist()
    ([0.7], [0.7])
    """
    near = np.zeros(len(scores), dtype=bool)
    near[split.candidates.region[split.is_counted[split.candidates.target]]] = True
    part = split.keeping(near)
    step, levels = _steps(
        part.detections.image, np.asarray(scores, dtype=np.float64)[near], len(split.images)
    )
    image = split.object_image
    misclassified_to, found_above = np.full(len(image), -np.inf), np.full(len(image), np.inf)
    for k in range(levels.shape[1]):
        outcome = part.match(
            step < k
        ).of_object  # what any τ above level k - 1, up to level k gives
        wrong, found = outcome == MISCLASSIFIED, outcome == FOUND
        misclassified_to[wrong] = levels[image[wrong], k]
        first = found & np.isinf(found_above)
        found_above[first] = levels[image[first], k - 1]
    return UnknownObjects(misclassified_to, found_above, image, split.is_counted)


@dataclass(frozen=True)
class KnownObjects:
    """Up to which τ each object of a known class is detected as its class by a region that is kept.

    Args:
        detected_to: One threshold per object that is counted; −∞ for never.
        image: Place of each object's image in `ClosedSet.images`.
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
    pairs = closed.pairs if iou >= closed.least else closed.pairs_over(iou)
    near = np.zeros(len(scores), dtype=bool)
    near[closed.detections.row[pairs.region]] = True
    rows = closed.detections.row[near[closed.detections.row]]
    image = closed.detections.image[near[closed.detections.row]]
    of_rows, levels = _steps(image, np.asarray(scores, dtype=np.float64)[rows], len(closed.images))
    step = np.full(len(scores), -1)
    step[rows] = of_rows
    detected_to = np.full(len(closed.object_row), -np.inf)
    for k in range(levels.shape[1] - 1):
        matched = next(closed.keeping(step >= k).assigned([iou], closed.is_ignored))
        matched = matched[matched >= 0]
        detected_to[matched] = levels[closed.object_image[matched], k]
    counted = closed.counted()
    return KnownObjects(detected_to[counted], closed.object_image[counted])


def _steps(image: np.ndarray, scores: np.ndarray, images: int) -> tuple[np.ndarray, np.ndarray]:
    """Place of each region's score among the different scores of its image, from 0; and these scores by image.

    Returns:
        ndarray of shape (N,), and one of shape (images, K + 1) for at most K different scores,
        filled up with ∞.
    """
    order = np.lexsort((scores, image))
    sorted_image, sorted_score = image[order], scores[order]
    number = np.zeros(len(order), dtype=np.int64)
    number[1:] = np.cumsum(
        sorted_score[1:] != sorted_score[:-1]
    )  # where an image starts, it is started from anew
    first = np.searchsorted(sorted_image, np.arange(images))
    start = (
        number[np.minimum(first, max(len(number) - 1, 0))]
        if len(number)
        else np.zeros(images, dtype=np.int64)
    )
    place = number - start[sorted_image]
    step = np.empty(len(order), dtype=np.int64)
    step[order] = place
    levels = np.full((images, int(place.max(initial=-1)) + 2), np.inf)
    levels[sorted_image, place] = sorted_score
    return step, levels
