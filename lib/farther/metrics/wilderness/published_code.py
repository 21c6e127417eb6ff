"""Matching and precision of the code published with the paper, for `protocol="published-code"`.

Source: https://github.com/Vastlab/Elephant-of-object-detection, `eval.py` and `WIC.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from farther.metrics.matching.boxes import image_numbers, is_among, pairs, places_among
from farther.metrics.precision_recall import PrecisionRecallCurve
from farther.metrics.wilderness.class_detections import ClosedDetections
from farther.tables import Objects, Regions
from farther.tables.arguments import booleans, class_names, instance, number, whole_number


def match(
    objects: Objects, regions: Regions, classes: Sequence[str], iou: float
) -> list[ClosedDetections]:
    """Detections of each class, matched to its objects.

    A detection is right if the object that it overlaps most, of any class, has its class, and no
    earlier row of the table took that object. Difficult objects count; crowds do not exist.

    Args:
        objects: Ground truth of the images.
        regions: Detections in them.
        classes: The known classes.
        iou: Smallest overlap.

    Returns:
        One entry per class, in their order.
    """
    instance(objects, Objects, "objects")
    instance(regions, Regions, "regions")
    classes = class_names(classes)
    iou = number(iou, "iou", above=0, at_most=1)
    objects = objects[~objects.is_crowd & is_among(objects.category, classes)]
    _, (region_image, object_image) = image_numbers(regions.image_id, objects.image_id)
    never = np.zeros(len(objects), dtype=bool)
    near = pairs(regions.box, region_image, objects.box, object_image, never, iou)
    best = near.preferred_first(never, -objects.object_id).first_of_each_region()

    object_class = places_among(objects.category, classes)
    class_of_label = places_among(np.array(regions.classes, dtype=object), classes)
    region_class = class_of_label[regions.label]
    right = best[region_class[best.region] == object_class[best.target]]
    _, first_of_object = np.unique(right.target, return_index=True)
    is_true = np.zeros(len(regions), dtype=bool)
    is_true[right.region[first_of_object]] = True

    positives = np.bincount(object_class, minlength=len(classes)).tolist()
    detections_by_class = []
    for k in range(len(classes)):
        rows = np.flatnonzero(region_class == k)
        rows = rows[np.argsort(-regions.score[rows], kind="stable")]
        score = regions.score[rows].astype(np.float64)
        detections_by_class.append(ClosedDetections(positives[k], score, is_true[rows]))
    return detections_by_class


def largest_precision(is_true: np.ndarray, positives: int, recall: float) -> float:
    """The largest precision at a recall or a larger one; 0 where the recall is not reached.

    Args:
        is_true: Ranked detections of a class, ndarray of shape (N,).
        positives: Number of its objects.
        recall: The recall, from 0 to 1.
    """
    is_true = booleans(is_true, "is_true")
    positives = whole_number(positives, "positives", at_least=0)
    recall = number(recall, "recall", at_least=0, at_most=1)
    if not positives:
        return 0.0
    curve = PrecisionRecallCurve.of(is_true, positives)
    return float(np.max(curve.precision[curve.recall >= recall - 1e-9], initial=0.0))
