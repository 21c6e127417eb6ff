"""The outcome tables of a method on a split, from matched detections and objects."""

from __future__ import annotations

import numpy as np

from farther.metrics.open_set import (
    FALSE_UNKNOWN,
    FOUND,
    IGNORED,
    KEPT,
    MISCLASSIFIED,
    MISSED,
    NOT_COUNTED,
    TRUE_UNKNOWN,
    Outcome,
)
from farther.tables import ObjectOutcomes, RegionOutcomes, Regions

_OBJECT = {FOUND: "found", MISCLASSIFIED: "misclassified", MISSED: "missed", NOT_COUNTED: "not_counted"}
_REGION = {TRUE_UNKNOWN: "found", FALSE_UNKNOWN: "false_unknown", KEPT: "known", IGNORED: "ignored"}


def tables(outcome: Outcome, regions: Regions) -> tuple[RegionOutcomes, ObjectOutcomes]:
    """The outcome of each region and of each object.

    Args:
        outcome: The split's regions matched to its objects.
        regions: The same regions.
    """
    objects = outcome.split.objects
    names = np.array([_REGION[kind] for kind in range(len(_REGION))], dtype=object)[outcome.kind]
    names[outcome.misclassifies] = "misclassified"
    target, overlap = outcome.matched_objects()
    decided_by = outcome.deciding_region()
    of_regions = RegionOutcomes(
        image_id=regions.image_id,
        region_id=regions.region_id,
        outcome=names,
        object_id=_numbers(objects.object_id, target),
        iou=overlap,
    )
    of_objects = ObjectOutcomes(
        image_id=objects.image_id,
        object_id=objects.object_id,
        category=objects.category,
        outcome=np.array([_OBJECT[fate] for fate in range(len(_OBJECT))], dtype=object)[outcome.fate],
        region_id=_numbers(regions.region_id, decided_by),
    )
    return of_regions, of_objects


def _numbers(numbers: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The numbers of rows, −1 for row −1."""
    return np.append(numbers, -1)[rows]
