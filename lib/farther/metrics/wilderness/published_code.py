"""Matching and precision of the code published with the paper, for `protocol="published-code"`.

Source: https://github.com/Vastlab/Elephant-of-object-detection, `eval.py` and `WIC.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from farther.metrics.matching.boxes import image_numbers, is_among, pairs, places_among
from farther.metrics.precision_recall import PrecisionRecallCurve
from farther.tables import Objects, Regions


def match(
    objects: Objects, regions: Regions, classes: Sequence[str], iou: float
) -> tuple[list[int], list[tuple[np.ndarray, np.ndarray]]]:
    """Number of objects of each class, and scores (falling) and truth of its detections.

    A detection is right if the object that it overlaps most, of any class, has its class, and no
    earlier row of the table took that object. Difficult objects count; crowds do not exist.

    Args:
        objects: Ground truth of the images.
        regions: Detections in them.
        classes: The known classes.
        iou: Smallest overlap.
    """
    objects = objects[~objects.is_crowd & is_among(objects.category, classes)]
    _, (region_image, object_image) = image_numbers(regions.image_id, objects.image_id)
    never = np.zeros(len(objects), dtype=bool)
    near = pairs(regions.box, region_image, objects.box, object_image, never, iou)
    best = near.preferred_first(never, -objects.object_id).first_of_each_region()
    object_class = places_among(objects.category, classes)
    region_class = places_among(np.array(regions.classes, dtype=object), classes)[regions.label]
    right = best[region_class[best.region] == object_class[best.target]]
    first_rows = right.region[np.unique(right.target, return_index=True)[1]]
    is_true = np.zeros(len(regions), dtype=bool)
    is_true[first_rows] = True
    found = []
    for k in range(len(classes)):
        rows = np.flatnonzero(region_class == k)
        rows = rows[np.argsort(-regions.score[rows], kind="stable")]
        found.append((regions.score[rows].astype(np.float64), is_true[rows]))
    return np.bincount(object_class, minlength=len(classes)).tolist(), found


def largest_precision(is_true: np.ndarray, positives: int, recall: float) -> float:
    """The largest precision at a recall or a larger one; 0 where the recall is not reached.

    Args:
        is_true: Ranked detections of a class, ndarray of shape (N,).
        positives: Number of its objects.
        recall: The recall, from 0 to 1.
    """
    if not positives:
        return 0.0
    curve = PrecisionRecallCurve.of(is_true, positives)
    return float(np.max(curve.precision[curve.recall >= recall - 1e-9], initial=0.0))
