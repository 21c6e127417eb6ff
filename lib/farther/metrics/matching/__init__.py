"""Matching: detections choose objects in the order of their confidence; and the object that each detection shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from farther.metrics.matching.boxes import OverlapPairs, image_numbers, is_among, pairs
from farther.tables import Objects, Regions, TrueClasses


def ranks(score: np.ndarray, image: np.ndarray, number: np.ndarray) -> np.ndarray:
    """Place of each row when sorted by falling score, ndarray of shape (N,), int32.

    Args:
        image, number: Equal scores go by the image, then by the row's number in it, so that the
            order of the rows in a table has no influence.
    """
    rank = np.empty(len(score), dtype=np.int32)
    falling = -np.asarray(score)
    step = np.diff(image)
    if np.all((step > 0) | ((step == 0) & (number[1:] >= number[:-1]))):
        # As tables are stored; sorting by one key is several times as fast.
        rank[np.argsort(falling, kind="stable")] = np.arange(len(score), dtype=np.int32)
    else:
        rank[np.lexsort((number, image, falling))] = np.arange(len(score), dtype=np.int32)
    return rank


def ranks_within(score: np.ndarray, group: np.ndarray, number: np.ndarray) -> np.ndarray:
    """Place of each row among the rows of its group when sorted by falling score, from 0; equal scores by `number`."""
    order = falling_in_groups(score, group, number)
    in_order = group[order]
    is_first = np.ones(len(order), dtype=bool)
    is_first[1:] = in_order[1:] != in_order[:-1]
    del in_order  # of some 10⁷ rows everything counts
    first = np.where(is_first, np.arange(len(order), dtype=np.int32), np.int32(0))
    place = np.empty(len(order), dtype=np.int32)
    place[order] = np.arange(len(order), dtype=np.int32) - np.maximum.accumulate(first)
    return place


def falling_in_groups(score: np.ndarray, group: np.ndarray, *ties: np.ndarray) -> np.ndarray:
    """Rows sorted by group, within it by falling score, and where both are equal by `ties`, the first of them first.

    Args:
        score: ndarray of shape (N,).
        group: ndarray of shape (N,), integers below 2³¹.
        ties: Arrays of shape (N,).
    """
    if len(score) and score.dtype == np.float32 and score.min() >= 0:
        # One key of integers, in whose bits positive numbers have their order: a fraction of the
        # time of several.
        key = group.astype(np.int64)
        key <<= 32
        key -= (score + np.float32(0)).view(np.uint32)
        order = np.argsort(key, kind="stable")
        key.sort()
        tied = np.flatnonzero(key[1:] == key[:-1])
        # Ties are in the order of the table, which mostly is the one that is asked for.
        in_order, undecided = np.zeros(len(tied), dtype=bool), np.ones(len(tied), dtype=bool)
        for values in ties:
            step = values[order[tied + 1]] - values[order[tied]]
            in_order |= undecided & (step > 0)
            undecided &= step == 0
        if np.all(in_order | undecided):
            return order
    return np.lexsort((*reversed(ties), -np.asarray(score, dtype=np.float64), group))


def best_of_each_class(
    score: np.ndarray,
    of_class: np.ndarray,
    image: np.ndarray,
    number: np.ndarray,
    classes: int,
    most: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the best-scored detections of each image and class, sorted by class, then falling score, then image, then
    number; and the place of each among those of its image and class. Rows of class −1 are left out.

    Args:
        score, of_class, image, number: Of each detection, ndarrays of shape (N,).
        classes: Number of classes.
        most: Detections of each image and class.
    """
    key = image.astype(np.int64) * classes + of_class
    key[of_class < 0] = -1
    place = ranks_within(score, key, number)
    del key  # of some 10⁷ rows everything counts
    row = np.flatnonzero((of_class >= 0) & (place < most)).astype(np.int32)
    columns = [score, of_class, image, number]
    row = row[
        falling_in_groups(
            *(columns if len(row) == len(score) else [column[row] for column in columns])
        )
    ]
    return row, place[row]


def above_of_class(regions: Regions, levels: Mapping[str, float | None]) -> np.ndarray:
    """Detections from their class's confidence on, ndarray of bool; none of a class with None or without an entry."""
    given = [levels.get(name) for name in regions.classes]
    level = np.array([np.inf if one is None else one for one in given], dtype=np.float32)
    return regions.score >= level[regions.label]


def assign(pairs: OverlapPairs, rank: np.ndarray, reusable: np.ndarray) -> np.ndarray:
    """Greedy one-to-one matching: in the order of their rank, regions take their most preferred free object.

    Args:
        pairs: Regions and the objects that they may take; sorted by region, and within it the most
            preferred first.
        rank: ndarray of shape (N,), integers: a different number below N for each region, the
            smallest chooses first.
        reusable: ndarray of shape (M,), bool: objects that any number of regions may take.

    Returns:
        ndarray of shape (N,), int32: the object's row, or −1.

    All regions choose at once; where two choose one object, the later in rank goes on to its next
    choice, until none has to (Gale and Shapley, 1962, doi:10.2307/2312726). As all objects prefer
    the same ranks, the result is that of choosing one by one.
    """
    matched = np.full(len(rank), -1, dtype=np.int32)
    if not len(pairs):
        return matched
    choice = np.flatnonzero(np.diff(pairs.region, prepend=-1))
    end = np.append(choice[1:], len(pairs))
    holder = np.full(len(reusable), len(rank), dtype=rank.dtype)
    of_choice = rank[pairs.region[choice]]
    while True:
        chosen = pairs.target[choice]
        np.minimum.at(holder, chosen, of_choice)
        refused = (of_choice > holder[chosen]) & ~reusable[chosen]
        if not refused.any():
            matched[pairs.region[choice]] = chosen
            return matched
        choice = choice + refused
        left = choice < end
        choice, end, of_choice = choice[left], end[left], of_choice[left]


def true_classes(objects: Objects, regions: Regions, iou: float = 0.5) -> TrueClasses:
    """The class of the object that each detection overlaps most, whatever class the detector gives it.

    Several detections of one object all show it. Crowds, whose objects have no boxes, are left out.

    Args:
        objects: Annotated objects of the images.
        regions: Detections in them.
        iou: Smallest overlap that counts. Of equal overlaps the object with the larger `object_id`
            counts, as in matching.

    Returns:
        One row per detection, in their order; `category` is empty where no object overlaps it
        enough.

    >>> from farther.tables import Objects, Regions
    >>> objects = Objects(image_id=["a"], object_id=[0], box=[[0, 0, 10, 10]], category=["fox"])
    >>> regions = Regions(
    ...     image_id=["a", "a"],
    ...     region_id=[0, 1],
    ...     box=[[0, 0, 10, 9], [50, 0, 60, 10]],
    ...     score=[0.9, 0.8],
    ...     label=[0, 0],
    ...     logits=[[1.0], [1.0]],
    ...     classes=("cat",),
    ... )
    >>> true_classes(objects, regions).category.tolist()
    ['fox', '']
    """
    _, (region_image, object_image) = image_numbers(regions.image_id, objects.image_id)
    rows = np.flatnonzero(~objects.is_crowd)
    never = np.zeros(len(rows), dtype=bool)
    found = pairs(regions.box, region_image, objects.box[rows], object_image[rows], never, iou)
    best = found.preferred_first(never, objects.object_id[rows]).first_of_each_region()
    category = np.full(len(regions), "", dtype=object)
    category[best.region] = objects.category[rows][best.target]
    return TrueClasses(image_id=regions.image_id, region_id=regions.region_id, category=category)


def not_of_known(
    objects: Objects, regions: Regions, known_classes: Sequence[str], iou: float = 0.5
) -> np.ndarray:
    """Detections that are out of distribution in images that may show known objects too, ndarray of shape (N,), bool.

    Args:
        objects, regions, iou: see `true_classes`.
        known_classes: Categories of `objects` that the detector was trained on.

    Returns:
        False for detections of known objects; all True where no known object is annotated.
    """
    if not is_among(objects.category, known_classes).any():
        return np.ones(len(regions), dtype=bool)
    return ~is_among(true_classes(objects, regions, iou).category, known_classes)
