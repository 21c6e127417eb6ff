"""Causes of wrong detections, and their shares at each recall (Hoiem et al., Diagnosing Error in Object Detectors, ECCV
2012; with unknown objects as in Section 4.1 of Dhamija et al., WACV 2020,
doi:10.1109/WACV45572.2020.9093355).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from farther.errors import ParameterError
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
    settings = settings or Diagnosis()
    cause = np.full(len(regions), "", dtype=object)
    above = above_of_class(regions, points)
    wild = is_among(regions.image_id, settings.wild_images)
    cause[above & wild], cause[above & ~wild] = "mixed_unknown", "background"

    near, is_ignored = _touching(objects, regions, above, settings.touch)
    groups: dict[str, set[int]] = {}
    for number, members in enumerate(settings.similar):
        for member in members:
            groups.setdefault(member, set()).add(number)
    detected_as = regions.label[near.region]
    known = is_among(objects.category, points.keys())[near.target]
    alike = np.zeros(len(near), dtype=bool)
    if groups:
        both = zip(
            np.array(regions.classes, dtype=object)[detected_as],
            objects.category[near.target],
            strict=True,
        )
        alike[:] = [not groups.get(a, set()).isdisjoint(groups.get(b, ())) for a, b in both]
    on_ignored = is_ignored[near.target]
    # From the weakest claim to the strongest: a later one overwrites.
    for claim, fits in (
        ("ignored", on_ignored),
        ("unknown_unknown", ~known & ~on_ignored),
        ("other_class", known & ~on_ignored),
        ("similar", known & alike & ~on_ignored),
        (
            "localisation",
            (detected_as == places_among(objects.category, regions.classes)[near.target])
            & ~on_ignored,
        ),
    ):
        cause[near.region[fits]] = claim

    rows = np.flatnonzero(above)
    of_known = ClosedSet.of(objects, regions[above], tuple(points), max_detections=len(rows))
    is_true = of_known.match([settings.iou]).kind[0] == TRUE
    cause[rows[of_known.detections.row[is_true]]] = "correct"
    return cause


def counts_at_recalls(
    matched: MatchedDetections,
    cause: np.ndarray,
    recalls: Sequence[float],
    weights: ImageWeights | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Detections of each cause from the operating points on, summed over the classes that reach the recall.

    A class's operating point at recall r is the highest confidence at which at least that share of
    its objects is found; all detections of equal confidence count.

    Args:
        matched: Detections of known classes at one IoU threshold.
        cause: Place in `CAUSES` of the cause of each of them, or −1, in their order, ndarray of
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
    if wrong := [recall for recall in recalls if not 0 < recall <= 1]:
        raise ParameterError(f"expected a recall above 0 and at most 1, found {wrong[0]}")
    objects, rows = matched.objects(weights), matched.detections(weights)
    replicates = objects.shape[1]
    counts = np.zeros((len(CAUSES), len(recalls), replicates))
    classes = np.zeros((len(recalls), replicates), dtype=np.int64)
    for k in np.flatnonzero(matched.positives).tolist():
        of_class = matched.rows(k)
        score = matched.score[of_class]
        last = np.searchsorted(-score, -score, side="right") - 1
        true = np.flatnonzero(matched.kind[0, of_class] == TRUE)
        by_cause = [np.flatnonzero(cause[of_class] == number) for number in range(len(CAUSES))]
        if not len(true):
            continue
        if rows.grouped:
            needed = np.multiply.outer(np.asarray(recalls), objects[k]) - 1e-9
            found, reached = _counts_of_groups(rows[of_class], last, true, by_cause, needed)
            reached &= objects[k] > 0
            classes += reached
            counts += found * reached
            continue
        for block in blocks(replicates, len(score)):
            each = rows[of_class].in_block(block)
            found = np.cumsum(each[:, true], axis=1)
            needed = np.multiply.outer(np.asarray(recalls), objects[k, block]) - 1e-9
            reached = (found[:, -1] >= needed) & (objects[k, block] > 0)
            point = last[
                true[np.stack([np.argmax(found >= least[:, None], axis=1) for least in needed])]
            ]
            classes[:, block] += reached
            at = np.arange(len(each))
            for total, of_cause in zip(counts, by_cause, strict=True):
                so_far = accumulated(each[:, of_cause])
                total[:, block] += (
                    so_far[at, np.searchsorted(of_cause, point, side="right")] * reached
                )
    return counts, classes


def _counts_of_groups(
    rows: RowWeights,
    last: np.ndarray,
    true: np.ndarray,
    by_cause: Sequence[np.ndarray],
    needed: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Counts of each cause (8, R, B) of a class, and the recalls that it reaches (R, B), at levels of the confidence.

    Args:
        rows: Weights of the detections, the most confident first.
        last: The last detection of the same confidence as each.
        true: The correct ones.
        by_cause: Those of each cause.
        needed: Number of correct detections at each recall, ndarray of shape (R, B).
    """
    ends = np.unique(last[np.linspace(0, len(last) - 1, LEVELS).astype(np.int64)])
    level = np.searchsorted(ends, np.arange(len(last)))
    found = rows[true].up_to_level(level[true], len(ends))
    point = np.stack([np.argmax(found >= least[:, None], axis=1) for least in needed])
    at = np.arange(found.shape[0])
    each = [
        rows[of_cause].up_to_level(level[of_cause], len(ends))[at, point] for of_cause in by_cause
    ]
    return np.stack(each), found[:, -1] >= needed


def shares(counts: np.ndarray) -> dict[str, np.ndarray]:
    """Share of each cause in the detections that are not ignored; NaN where there is none.

    Args:
        counts: From `counts_at_recalls`, ndarray of shape (8, R, B).

    Returns:
        {cause: ndarray of shape (R, B)}, without "ignored".
    """
    kept = {
        name: of_cause for name, of_cause in zip(CAUSES, counts, strict=True) if name != "ignored"
    }
    whole = np.sum(list(kept.values()), axis=0)
    return {name: ratio(part, whole) for name, part in kept.items()}


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
    near, is_ignored = _touching(objects, regions, above_of_class(regions, points), touch)
    best = near.preferred_first(is_ignored, objects.object_id).first_of_each_region()
    detected = np.array(regions.classes, dtype=object)[regions.label[best.region]]
    counts = Counter(zip(objects.category[best.target], detected, strict=True))
    table: dict[str, dict[str, int]] = {}
    for (category, detected_as), count in sorted(counts.items()):
        table.setdefault(category, {})[detected_as] = count
    return table


def _touching(
    objects: Objects, regions: Regions, above: np.ndarray, touch: float
) -> tuple[OverlapPairs, np.ndarray]:
    """Pairs of a chosen detection and an object that overlap by `touch`; and the objects that are not counted."""
    _, (region_image, object_image) = image_numbers(regions.image_id, objects.image_id)
    near = pairs(regions.box, region_image, objects.box, object_image, objects.is_crowd, touch)
    return near[above[near.region]], objects.is_crowd | objects.is_difficult
