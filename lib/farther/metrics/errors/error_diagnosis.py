"""Causes of wrong detections, and their shares at each recall.

Source: Hoiem et al., Diagnosing Error in Object Detectors, ECCV 2012; with unknown objects as in
Section 4.1 of Dhamija et al., WACV 2020, doi:10.1109/WACV45572.2020.9093355.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from farther.metrics.closed_set import ClosedSet
from farther.metrics.closed_set.matched_detections import MatchedDetections
from farther.metrics.matching import above_of_class
from farther.metrics.matching.boxes import (
    OverlapPairs,
    image_numbers,
    is_among,
    pairs,
    places_among,
)
from farther.metrics.precision_recall import TRUE
from farther.metrics.weighting import LEVELS, ImageWeights, RowWeights, accumulated, blocks, ratio
from farther.tables import Objects, Regions
from farther.tables.arguments import floats, instance, instances, integers, number, texts

#: Smallest overlap at which a detection is attributed to an object (Hoiem et al., 2012).
TOUCH = 0.1

CAUSES = (
    "correct",
    "localisation",
    "similar",
    "other_class",
    "background",
    "unknown_unknown",
    "mixed_unknown",
    "ignored",
)

#: Recalls at which the shares of the causes are computed.
RECALLS = tuple(step / 20 for step in range(1, 20))


@dataclass(frozen=True)
class Diagnosis:
    """Attribution of detections to causes.

    Args:
        similar: Groups of classes that are easily confused; a class may be in several.
        wild_images: Names of the images without known objects.
        iou: Smallest overlap of a correct detection of the right class.
        touch: Smallest overlap at which a detection is attributed to an object.
    """

    similar: Sequence[Collection[str]] = ()
    wild_images: Collection[str] = ()
    iou: float = 0.5
    touch: float = TOUCH

    def __post_init__(self) -> None:
        groups = []
        for group in instances(self.similar, Collection, "similar"):
            groups.append(tuple(texts(group, "similar", any_order=True)))
        object.__setattr__(self, "similar", tuple(groups))
        wild_images = frozenset(texts(self.wild_images, "wild_images", any_order=True))
        object.__setattr__(self, "wild_images", wild_images)
        object.__setattr__(self, "iou", number(self.iou, "iou", above=0, at_most=1))
        object.__setattr__(self, "touch", number(self.touch, "touch", above=0, at_most=1))


def diagnose(
    objects: Objects,
    regions: Regions,
    points: Mapping[str, float | None],
    settings: Diagnosis | None = None,
) -> np.ndarray:
    """The cause of each detection.

    Args:
        objects: Ground truth; categories that are not keys of `points` are unknown.
        regions: N detections.
        points: Each known class's operating point; detections below it, and of classes with None,
            have no cause.
        settings: How detections are attributed.

    Returns:
        ndarray of shape (N,), one of `CAUSES`, or "" for no cause. The first that fits: correct;
        localisation (its class, but too little overlap, or the object is taken); similar (an object
        of a similar class); other_class; unknown_unknown (a labelled unknown object); ignored (in a
        crowd, or on a difficult object); mixed_unknown (nothing labelled, in a wild image);
        background (nothing labelled, elsewhere). The paper calls the last two together mixed
        unknowns.

        A detection's cause depends on more confident ones of its image only: those above a higher
        operating point keep their causes.
    """
    if settings is None:
        settings = Diagnosis()
    instance(objects, Objects, "objects")
    instance(regions, Regions, "regions")
    instance(points, Mapping, "points")
    is_above = above_of_class(regions, points)
    is_wild = is_among(regions.image_id, settings.wild_images)
    cause = np.full(len(regions), "", dtype=object)
    cause[is_above & is_wild] = "mixed_unknown"
    cause[is_above & ~is_wild] = "background"

    near, is_ignored = _touching(objects, regions, is_above, settings.touch)
    region_class = regions.label[near.region]
    object_class = places_among(objects.category, regions.classes)[near.target]
    is_known = is_among(objects.category, points.keys())[near.target]
    is_counted = ~is_ignored[near.target]
    is_similar = _are_similar(
        np.array(regions.classes, dtype=object)[region_class],
        objects.category[near.target],
        settings.similar,
    )
    # From the weakest claim to the strongest: a later one overwrites.
    cause[near.region[~is_counted]] = "ignored"
    cause[near.region[is_counted & ~is_known]] = "unknown_unknown"
    cause[near.region[is_counted & is_known]] = "other_class"
    cause[near.region[is_counted & is_known & is_similar]] = "similar"
    cause[near.region[is_counted & (region_class == object_class)]] = "localisation"

    rows = np.flatnonzero(is_above)
    known = ClosedSet.of(objects, regions[is_above], tuple(points), max_detections=len(rows))
    is_true = known.match([settings.iou]).kind[0] == TRUE
    cause[rows[known.detections.row[is_true]]] = "correct"
    return cause


def _are_similar(
    detected: np.ndarray, category: np.ndarray, similar: Sequence[Collection[str]]
) -> np.ndarray:
    """Whether the two classes of each pair are easily confused, ndarray of shape (P,), bool.

    Args:
        detected, category: Class of the detection and of the object, object arrays of shape (P,).
        similar: Groups of classes that are easily confused.
    """
    if not similar:
        return np.zeros(len(detected), dtype=bool)
    groups_by_class: dict[str, set[int]] = {}
    for group, members in enumerate(similar):
        for member in members:
            groups_by_class.setdefault(member, set()).add(group)

    is_similar = np.zeros(len(detected), dtype=bool)
    no_groups: set[int] = set()
    for row, (first, second) in enumerate(zip(detected, category, strict=True)):
        first_groups = groups_by_class.get(first, no_groups)
        second_groups = groups_by_class.get(second, no_groups)
        is_similar[row] = not first_groups.isdisjoint(second_groups)
    return is_similar


def counts_at_recalls(
    matched: MatchedDetections,
    cause: np.ndarray,
    recalls: Sequence[float],
    weights: ImageWeights | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Detections of each cause from the operating points on, and classes that reach each recall.

    Detections are summed over the classes that reach the recall. A class's operating point at
    recall r is the highest confidence at which at least that share of its objects is found; all
    detections of equal confidence count.

    Args:
        matched: Detections of known classes at one IoU threshold.
        cause: Index in `CAUSES` of the cause of each of them, or −1, in their order, ndarray of
            shape (n,).
        recalls: R recalls, above 0 and at most 1.
        weights: How often each image counts in each of B replicates, see
            `farther.metrics.closed_set.Matches.metrics`.

    Returns:
        Counts in the order of `CAUSES`, ndarray of shape (8, R, B), with B = 1 without weights; and
        the number of classes that reach each recall, ndarray of shape (R, B).

    Raises:
        ParameterError: a recall is not above 0 and at most 1.
    """
    recalls = [
        number(recall, "recalls", above=0, at_most=1)
        for recall in floats(recalls, "recalls").tolist()
    ]
    instance(matched, MatchedDetections, "matched")
    cause = integers(cause, "cause", shape=(len(matched.score),))
    if weights is None:
        return _counts_once(matched, cause, recalls)
    objects = matched.objects(weights)
    detections = matched.detections(weights)
    replicates = objects.shape[1]
    counts = np.zeros((len(CAUSES), len(recalls), replicates))
    classes = np.zeros((len(recalls), replicates), dtype=np.int64)
    for k in np.flatnonzero(matched.positives).tolist():
        rows = matched.rows(k)
        true = np.flatnonzero(matched.kind[0, rows] == TRUE)
        if not len(true):
            continue
        score = matched.score[rows]
        ranked = _RankedClass(
            weights=detections[rows],
            last_of_equal=np.searchsorted(-score, -score, side="right") - 1,
            true=true,
            by_cause=[np.flatnonzero(cause[rows] == number) for number in range(len(CAUSES))],
        )
        needed = np.multiply.outer(np.asarray(recalls), objects[k]) - 1e-9
        if ranked.weights.grouped:
            class_counts, is_reached = ranked.counts_of_groups(needed)
        else:
            class_counts, is_reached = ranked.counts(needed)
        is_reached &= objects[k] > 0
        classes += is_reached
        counts += class_counts * is_reached
    return counts, classes


def _counts_once(
    matched: MatchedDetections, cause: np.ndarray, recalls: Sequence[float]
) -> tuple[np.ndarray, np.ndarray]:
    """`counts_at_recalls` where each image counts once: of all classes together."""
    starts = matched.bounds[:-1]
    positives = matched.positives
    true = np.flatnonzero(matched.kind[0] == TRUE)
    first_true = np.searchsorted(true, matched.bounds)
    is_last_of_equal = np.append(matched.score[1:] != matched.score[:-1], True)
    is_last_of_equal[matched.bounds[1:] - 1] = True
    last_of_equal = np.flatnonzero(is_last_of_equal)

    ends = np.zeros((len(recalls), len(positives)), dtype=np.int64)
    is_reached = np.zeros(ends.shape, dtype=bool)
    for index, recall in enumerate(recalls):
        needed = np.maximum(np.ceil(recall * positives - 1e-9), 1).astype(np.int64)
        reached = (np.diff(first_true) >= needed) & (positives > 0)
        point = true[(first_true[:-1] + needed - 1)[reached]]
        ends[index] = starts
        ends[index, reached] = last_of_equal[np.searchsorted(last_of_equal, point)] + 1
        is_reached[index] = reached

    counts = np.zeros((len(CAUSES), len(recalls), 1))
    for place in range(len(CAUSES)):
        so_far = np.append(0, np.cumsum(cause == place))
        counts[place, :, 0] = (so_far[ends] - so_far[starts]).sum(axis=1)
    return counts, is_reached.sum(axis=1, keepdims=True)


@dataclass(frozen=True)
class _RankedClass:
    """Detections of one class, the most confident first.

    Args:
        weights: Weights of the detections.
        last_of_equal: The last detection of the same confidence as each, ndarray of shape (n,).
        true: The correct ones, ascending.
        by_cause: Those of each cause, ascending, in the order of `CAUSES`.
    """

    weights: RowWeights
    last_of_equal: np.ndarray
    true: np.ndarray
    by_cause: Sequence[np.ndarray]

    def counts(self, needed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Counts of each cause down to the operating points, and the recalls that are reached.

        Args:
            needed: Number of correct detections at each recall, ndarray of shape (R, B).

        Returns:
            ndarrays of shape (8, R, B) and (R, B); counts mean nothing where a recall is not
            reached.
        """
        counts = np.zeros((len(self.by_cause), *needed.shape))
        is_reached = np.zeros(needed.shape, dtype=bool)
        for block in blocks(needed.shape[1], len(self.weights)):
            weight = self.weights.in_block(block)
            # `take` and not [:, rows], whose rows are not contiguous: see `ranked_areas`.
            true_so_far = np.cumsum(np.take(weight, self.true, axis=1), axis=1)
            is_reached[:, block] = true_so_far[:, -1] >= needed[:, block]
            first_true = _first_reaching(true_so_far, needed[:, block])
            point = self.last_of_equal[self.true[first_true]]
            replicate = np.arange(len(weight))
            for cause, rows in enumerate(self.by_cause):
                if not len(rows):
                    continue
                so_far = accumulated(np.take(weight, rows, axis=1))
                count_at_point = np.searchsorted(rows, point, side="right")
                counts[cause, :, block] = so_far[replicate, count_at_point]
        return counts, is_reached

    def counts_of_groups(self, needed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """As `counts`, at some levels of the confidence."""
        level_rows = np.linspace(0, len(self.last_of_equal) - 1, LEVELS).astype(np.int64)
        level_ends = np.unique(self.last_of_equal[level_rows])
        level = np.searchsorted(level_ends, np.arange(len(self.last_of_equal)))
        true_so_far = self.weights[self.true].up_to_level(level[self.true], len(level_ends))
        point = _first_reaching(true_so_far, needed)
        replicate = np.arange(len(true_so_far))
        counts = []
        for rows in self.by_cause:
            so_far = self.weights[rows].up_to_level(level[rows], len(level_ends))
            counts.append(so_far[replicate, point])
        return np.stack(counts), true_so_far[:, -1] >= needed


def _first_reaching(so_far: np.ndarray, needed: np.ndarray) -> np.ndarray:
    """The first column at which a growing count reaches each number that is needed.

    Args:
        so_far: ndarray of shape (B, n).
        needed: ndarray of shape (R, B).

    Returns:
        ndarray of shape (R, B); 0 where the number is not reached.
    """
    first = [np.argmax(so_far >= at_recall[:, None], axis=1) for at_recall in needed]
    return np.stack(first)


def shares(counts: np.ndarray) -> dict[str, np.ndarray]:
    """Share of each cause in the detections that are not ignored; NaN where there is none.

    Args:
        counts: From `counts_at_recalls`, ndarray of shape (8, R, B).

    Returns:
        {cause: ndarray of shape (R, B)}, without "ignored".
    """
    counts = floats(counts, "counts", shape=(len(CAUSES), None, None))
    count_by_cause = dict(zip(CAUSES, counts, strict=True))
    del count_by_cause["ignored"]
    total = np.sum(list(count_by_cause.values()), axis=0)
    return {cause: ratio(count, total) for cause, count in count_by_cause.items()}


def confusion(
    objects: Objects, regions: Regions, points: Mapping[str, float | None], touch: float = TOUCH
) -> dict[str, dict[str, int]]:
    """Classes that objects are detected as, by category (Dhamija et al., 2020, Figure 4).

    Args:
        objects, regions, points: see `diagnose`.
        touch: see `Diagnosis`.

    Returns:
        {category of the object: {class of the detection: count}}, each detection counted for the
        object it overlaps most; unknown categories beside the known ones.
    """
    instance(objects, Objects, "objects")
    instance(regions, Regions, "regions")
    instance(points, Mapping, "points")
    touch = number(touch, "touch", above=0, at_most=1)
    near, is_ignored = _touching(objects, regions, above_of_class(regions, points), touch)
    best = near.preferred_first(is_ignored, objects.object_id).first_of_each_region()
    detected = np.array(regions.classes, dtype=object)[regions.label[best.region]]
    counts = Counter(zip(objects.category[best.target], detected, strict=True))
    table: dict[str, dict[str, int]] = {}
    for (category, detected_as), count in sorted(counts.items()):
        table.setdefault(category, {})[detected_as] = count
    return table


def _touching(
    objects: Objects, regions: Regions, is_chosen: np.ndarray, touch: float
) -> tuple[OverlapPairs, np.ndarray]:
    """Pairs of a chosen detection and an object that overlap, and the objects that do not count.

    Args:
        objects, regions: see `diagnose`.
        is_chosen: Detections, ndarray of shape (N,), bool.
        touch: Smallest overlap.
    """
    _, (region_image, object_image) = image_numbers(regions.image_id, objects.image_id)
    near = pairs(regions.box, region_image, objects.box, object_image, objects.is_crowd, touch)
    return near[is_chosen[near.region]], objects.is_crowd | objects.is_difficult
