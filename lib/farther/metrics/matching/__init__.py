"""Greedy matching of detections to objects by confidence, and the object that each one shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from farther.metrics.matching.boxes import OverlapPairs, image_numbers, is_among, pairs
from farther.tables import Objects, Regions, TrueClasses
from farther.tables.arguments import instance, number, texts


def ranks(score: np.ndarray, image: np.ndarray, number: np.ndarray) -> np.ndarray:
    """Position of each row when sorted by falling score, ndarray of shape (N,), int32.

    Args:
        score: ndarray of shape (N,).
        image, number: Equal scores go by the image, then by the row's number in it, so that the
            order of the rows in a table has no influence.
    """
    falling = -np.asarray(score)
    step = np.diff(image)
    is_sorted = (step > 0) | ((step == 0) & (number[1:] >= number[:-1]))
    if np.all(is_sorted):
        # As tables are stored; sorting by one key is several times as fast.
        order = np.argsort(falling, kind="stable")
    else:
        order = np.lexsort((number, image, falling))
    rank = np.empty(len(score), dtype=np.int32)
    rank[order] = np.arange(len(score), dtype=np.int32)
    return rank


def ranks_within(score: np.ndarray, group: np.ndarray, number: np.ndarray) -> np.ndarray:
    """Position of each row within its group when sorted by falling score, from 0.

    Args:
        score: ndarray of shape (N,).
        group: Group of each row, ndarray of shape (N,), integers below 2³¹.
        number: Equal scores go by it, ndarray of shape (N,).

    Returns:
        ndarray of shape (N,), int32.
    """
    order = falling_in_groups(score, group, number)
    sorted_group = group[order]
    is_first = np.ones(len(order), dtype=bool)
    is_first[1:] = sorted_group[1:] != sorted_group[:-1]
    del sorted_group  # of some 10⁷ rows everything counts
    position = np.arange(len(order), dtype=np.int32)
    first_position = np.maximum.accumulate(np.where(is_first, position, np.int32(0)))
    rank = np.empty(len(order), dtype=np.int32)
    rank[order] = position - first_position
    return rank


def falling_in_groups(score: np.ndarray, group: np.ndarray, *ties: np.ndarray) -> np.ndarray:
    """Rows sorted by group, and within a group by falling score.

    Args:
        score: ndarray of shape (N,).
        group: ndarray of shape (N,), integers below 2³¹.
        ties: Arrays of shape (N,); rows of equal group and score are sorted by the first of them,
            then by the next.

    Returns:
        ndarray of shape (N,).
    """
    if len(score) and score.dtype == np.float32 and score.min() >= 0:
        order = _falling_by_key(score, group, ties)
        if order is not None:
            return order
    return np.lexsort((*reversed(ties), -np.asarray(score, dtype=np.float64), group))


def _falling_by_key(
    score: np.ndarray, group: np.ndarray, ties: Sequence[np.ndarray]
) -> np.ndarray | None:
    """`falling_in_groups` by a single key, which takes a fraction of the time of several.

    Args:
        score: float32, 0 or more.
        group, ties: See `falling_in_groups`.

    Returns:
        The order; None where the rows of equal keys are not sorted by `ties` in the table.
    """
    # An integer of the group and of the bits of the score, which have the order of positive
    # numbers.
    key = group.astype(np.int64)
    key <<= 32
    key -= (score + np.float32(0)).view(np.uint32)
    order = np.argsort(key, kind="stable")
    key.sort()
    tied = np.flatnonzero(key[1:] == key[:-1])

    # The sort is stable: tied rows are in the order of the table, which mostly is the right one.
    is_in_order = np.zeros(len(tied), dtype=bool)
    is_undecided = np.ones(len(tied), dtype=bool)
    for values in ties:
        step = values[order[tied + 1]] - values[order[tied]]
        is_in_order |= is_undecided & (step > 0)
        is_undecided &= step == 0
    if np.all(is_in_order | is_undecided):
        return order
    return None


def best_of_each_class(
    score: np.ndarray,
    of_class: np.ndarray,
    image: np.ndarray,
    number: np.ndarray,
    classes: int,
    max_detections: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the best-scored detections of each image and class.

    Args:
        score, of_class, image, number: Of each detection, ndarrays of shape (N,). Detections of
            class −1 are left out.
        classes: Number of classes.
        max_detections: Number of detections per image and class.

    Returns:
        Rows sorted by class, then falling score, then image, then number; and the rank of each
        among the detections of its image and class, from 0.
    """
    key = image.astype(np.int64) * classes + of_class
    key[of_class < 0] = -1
    rank = ranks_within(score, key, number)
    del key  # of some 10⁷ rows everything counts
    row = np.flatnonzero((of_class >= 0) & (rank < max_detections)).astype(np.int32)
    if len(row) < len(score):  # else the columns need not be copied
        score = score[row]
        of_class = of_class[row]
        image = image[row]
        number = number[row]
    row = row[falling_in_groups(score, of_class, image, number)]
    return row, rank[row]


def above_of_class(regions: Regions, levels: Mapping[str, float | None]) -> np.ndarray:
    """Detections at or above the confidence threshold of their class, ndarray of shape (N,), bool.

    Args:
        regions: N detections.
        levels: Threshold of each class; no detection of a class with None or without an entry is
            above.
    """
    instance(levels, Mapping, "levels")
    threshold_by_label = np.full(len(regions.classes), np.inf, dtype=np.float32)
    for label, name in enumerate(regions.classes):
        level = levels.get(name)
        if level is not None:
            threshold_by_label[label] = number(level, f"threshold of {name!r}", infinite=True)
    return regions.score >= threshold_by_label[regions.label]


def assign(pairs: OverlapPairs, rank: np.ndarray, reusable: np.ndarray) -> np.ndarray:
    """Greedy one-to-one matching: in the order of their rank, regions take their preferred object.

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
    # Of each region that is still choosing: the pair it has come to, the end of its pairs, its
    # rank.
    choice = np.flatnonzero(np.diff(pairs.region, prepend=-1))
    end = np.append(choice[1:], len(pairs))
    chooser_rank = rank[pairs.region[choice]]
    best_rank_of_object = np.full(len(reusable), len(rank), dtype=rank.dtype)
    while True:
        target = pairs.target[choice]
        np.minimum.at(best_rank_of_object, target, chooser_rank)
        is_refused = (chooser_rank > best_rank_of_object[target]) & ~reusable[target]
        if not is_refused.any():
            matched[pairs.region[choice]] = target
            return matched
        choice = choice + is_refused
        has_choice = choice < end
        choice = choice[has_choice]
        end = end[has_choice]
        chooser_rank = chooser_rank[has_choice]


def true_classes(objects: Objects, regions: Regions, iou: float = 0.5) -> TrueClasses:
    """The class of the object that each detection overlaps most, whatever class it is detected as.

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
    instance(objects, Objects, "objects")
    instance(regions, Regions, "regions")
    iou = number(iou, "iou", above=0, at_most=1)
    _, (region_image, object_image) = image_numbers(regions.image_id, objects.image_id)
    rows = np.flatnonzero(~objects.is_crowd)
    never = np.zeros(len(rows), dtype=bool)
    near = pairs(regions.box, region_image, objects.box[rows], object_image[rows], never, iou)
    best = near.preferred_first(never, objects.object_id[rows]).first_of_each_region()
    category = np.full(len(regions), "", dtype=object)
    category[best.region] = objects.category[rows][best.target]
    return TrueClasses(image_id=regions.image_id, region_id=regions.region_id, category=category)


def not_of_known(
    objects: Objects, regions: Regions, known_classes: Sequence[str], iou: float = 0.5
) -> np.ndarray:
    """Out-of-distribution detections in images that may show known objects too, bool.

    Args:
        objects, regions, iou: see `true_classes`.
        known_classes: Categories of `objects` that the detector was trained on.

    Returns:
        ndarray of shape (N,): False for detections of known objects; all True where no known object
        is annotated.
    """
    instance(objects, Objects, "objects")
    instance(regions, Regions, "regions")
    known_classes = list(texts(known_classes, "known_classes", any_order=True))
    if not is_among(objects.category, known_classes).any():
        return np.ones(len(regions), dtype=bool)
    return ~is_among(true_classes(objects, regions, iou).category, known_classes)
