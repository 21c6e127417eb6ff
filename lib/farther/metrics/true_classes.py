"""What each detection really shows, where objects are annotated."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from farther.metrics.boxes import image_numbers, pairs
from farther.tables import Objects, Regions, TrueClasses


def true_classes(objects: Objects, regions: Regions, iou: float = 0.5) -> TrueClasses:
    """The class of the object that each detection lies over most, whatever the detector calls it.

    Several detections of one object all show it. Crowds, which stand for objects nobody outlined, are left out.

    Args:
        objects: Annotated objects of the images.
        regions: Detections in them.
        iou: Smallest overlap that counts. Of equal overlaps the object with the larger `object_id` counts, as in
            matching.

    Returns:
        A row a detection, in their order; `category` is empty where no object lies under it.
    """
    _, (region_image, object_image) = image_numbers(regions.image_id, objects.image_id)
    rows = np.flatnonzero(~objects.is_crowd)
    never = np.zeros(len(rows), dtype=bool)
    found = pairs(regions.box, region_image, objects.box[rows], object_image[rows], never, iou)
    best = found.preferred_first(never, objects.object_id[rows]).first_of_each_region()
    category = np.full(len(regions), "", dtype=object)
    category[best.region] = objects.category[rows][best.target]
    return TrueClasses(image_id=regions.image_id, region_id=regions.region_id, category=category)


def not_of_known(objects: Objects, regions: Regions, known_classes: Sequence[str], iou: float = 0.5) -> np.ndarray:
    """Which detections are out of distribution in images that may show known objects too: all but those of them.

    Args:
        objects, regions, iou: See `true_classes`.
        known_classes: Categories of `objects` that the detector was taught.

    Returns:
        bool array of shape (N,); all True where no known object is annotated.
    """
    known = np.array(list(known_classes), dtype=object)
    if not np.isin(objects.category.astype(str), known.astype(str)).any():
        return np.ones(len(regions), dtype=bool)
    return ~np.isin(true_classes(objects, regions, iou).category.astype(str), known.astype(str))
