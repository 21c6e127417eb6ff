"""How well a detector finds and names the objects of the classes it knows: COCO's average precision and recall.

Figures are those of pycocotools' `COCOeval` for boxes, with an object's area being that of its box. What stands there
as a crowd (COCO's iscrowd, OpenImages' groups) and what Pascal VOC marks as difficult is neither to be found nor wrong
to be found: a detection of it is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from farther.errors import DataError
from farther.metrics.boxes import AREA_RANGES, Pairs, areas, image_numbers, pairs
from farther.metrics.matching import assign, ranks_within
from farther.metrics.precision_recall import Curve, sampled_ap
from farther.tables import Objects, Regions

#: IoU thresholds 0.50, 0.55, …, 0.95.
COCO_IOUS = np.linspace(0.5, 0.95, 10)

#: Recalls at which COCO samples the interpolated precision: 0.00, 0.01, …, 1.00.
RECALL_POINTS = 101

ALL_AREAS = (0.0, 1e10)
TRUE, FALSE, IGNORED = 1, 0, -1


def evaluate(
    objects: Objects, regions: Regions, classes: Sequence[str] | None = None, max_detections: int = 100
) -> dict[str, Any]:
    """COCO's figures for boxes.

    Args:
        objects: Ground truth; objects of other classes are left out.
        regions: Detections, best stored at a low threshold.
        classes: Names of the classes to be found; those of `regions` without the background when None.
        max_detections: Best-scored detections of an image and a class that count.

    Returns:
        Fractions; None where there is no object to be found.

        ap: Mean over classes with an object and over IoU 0.50 … 0.95 of the average precision.
        ap50, ap75: At IoU 0.5, 0.75.
        ap_small, ap_medium, ap_large: For objects up to 32², up to 96², and larger (square pixels).
        ar: Mean recall, at most `max_detections`; ar_1, ar_10: at most 1, 10; ar_small, ar_medium, ar_large.
        per_class: {class: {"ap", "ap50", "ar", "objects"}}.

    Raises:
        DataError: `classes` is empty or names a class twice.
    """
    known = Labelled(objects, regions, classes, max_detections)
    whole = known.verdicts(COCO_IOUS)
    ap = whole.average_precision()
    ar = whole.recall()
    figures: dict[str, Any] = {"ap": _mean(ap), "ap50": _mean(ap[0]), "ap75": _mean(ap[5])}
    by_area = {name: known.verdicts(COCO_IOUS, limits) for name, limits in AREA_RANGES.items()}
    figures |= {f"ap_{name}": _mean(verdicts.average_precision()) for name, verdicts in by_area.items()}
    figures |= {"ar": _mean(ar), "ar_1": _mean(whole.recall(1)), "ar_10": _mean(whole.recall(10))}
    figures |= {f"ar_{name}": _mean(verdicts.recall()) for name, verdicts in by_area.items()}
    figures["per_class"] = {
        name: {
            "ap": _mean(ap[:, k]),
            "ap50": _mean(ap[0, k]),
            "ar": _mean(ar[:, k]),
            "objects": int(whole.positives[k]),
        }
        for k, name in enumerate(known.classes)
    }
    return figures


@dataclass(frozen=True)
class Verdicts:
    """What each detection turned out to be, at each of T IoU thresholds.

    Args:
        kind: ndarray of shape (T, n), int8: `TRUE`, `FALSE` or `IGNORED`.
        place: ndarray of shape (n,): how many better-scored detections its image and class have.
        score: ndarray of shape (n,): the detector's confidence.
        bounds: ndarray of shape (K + 1,): class k has rows bounds[k] … bounds[k + 1], by falling score.
        positives: ndarray of shape (K,): objects to be found.
    """

    kind: np.ndarray
    place: np.ndarray
    score: np.ndarray
    bounds: np.ndarray
    positives: np.ndarray

    def curve(self, threshold: int, k: int) -> Curve:
        """Precision and recall of class k at the IoU threshold of this index, ignored detections left out."""
        kind = self.kind[threshold, self.bounds[k] : self.bounds[k + 1]]
        return Curve.of(kind[kind != IGNORED], self.positives[k])

    def scores(self, threshold: int, k: int) -> np.ndarray:
        """Confidences of the detections on that curve."""
        rows = slice(self.bounds[k], self.bounds[k + 1])
        return self.score[rows][self.kind[threshold, rows] != IGNORED]

    def average_precision(self) -> np.ndarray:
        """COCO's 101-point average precision, ndarray of shape (T, K); NaN for a class without objects."""
        result = np.full((len(self.kind), len(self.positives)), np.nan)
        for k in np.flatnonzero(self.positives).tolist():
            for threshold in range(len(self.kind)):
                result[threshold, k] = sampled_ap(self.curve(threshold, k), RECALL_POINTS)
        return result

    def recall(self, max_detections: int | None = None) -> np.ndarray:
        """Share of the objects found, ndarray of shape (T, K); NaN for a class without objects.

        Args:
            max_detections: Best-scored detections of an image and a class that count; all when None.
        """
        counts = np.ones(len(self.place), bool) if max_detections is None else self.place < max_detections
        found = np.concatenate([np.zeros((len(self.kind), 1)), np.cumsum((self.kind == TRUE) & counts, axis=1)], axis=1)
        found = np.diff(found[:, self.bounds], axis=1)
        return np.divide(found, self.positives, out=np.full(found.shape, np.nan), where=self.positives > 0)

    def above(self, score: float) -> Verdicts:
        """The same verdicts without the detections whose confidence is below `score`."""
        # Confidences are stored as float32, and compared as such wherever a threshold is applied.
        kept = self.score >= np.float32(score)
        bounds = np.append(0, np.cumsum(kept))[self.bounds]
        return Verdicts(self.kind[:, kept], self.place[kept], self.score[kept], bounds, self.positives)


class Labelled:
    """Objects and detections of the known classes, and which of them lie over each other.

    Args:
        objects, regions, classes, max_detections: see `evaluate`.

    `region_row` and `object_row` are rows of the tables given, `region_image` and `object_image` the places of their
    images in `images`; detections are sorted by class, then falling score, then image, then `region_id`.

    Raises:
        DataError: `classes` is empty or names a class twice.
    """

    def __init__(
        self, objects: Objects, regions: Regions, classes: Sequence[str] | None = None, max_detections: int = 100
    ):
        self.classes = tuple(regions.header.known_classes if classes is None else classes)
        if not self.classes or len(set(self.classes)) != len(self.classes):
            raise DataError(f"expected different names of classes, found {list(self.classes)}", field="classes")
        number = {name: k for k, name in enumerate(self.classes)}
        self.images, (region_image, object_image) = image_numbers(regions.image_id, objects.image_id)
        region_class = np.array([number.get(name, -1) for name in regions.classes], dtype=np.int64)[regions.label]
        object_class = np.fromiter((number.get(name, -1) for name in objects.category), np.int64, len(objects))
        self.object_row = np.flatnonzero(object_class >= 0)
        self.object_class = object_class[self.object_row]
        self.object_box = objects.box[self.object_row]
        self._object_id = objects.object_id[self.object_row]
        self.not_sought = (objects.is_crowd | objects.is_difficult)[self.object_row]
        self.object_image = object_image[self.object_row]
        self._object_key = self.object_image * len(self.classes) + self.object_class

        region_key = region_image * len(self.classes) + region_class
        place = ranks_within(regions.score, np.where(region_class >= 0, region_key, -1), regions.region_id)
        row = np.flatnonzero((region_class >= 0) & (place < max_detections))
        falling = -regions.score[row].astype(np.float64)
        row = row[np.lexsort((regions.region_id[row], region_image[row], falling, region_class[row]))]
        self.region_row = row
        self.region_image = region_image[row]
        self.place = place[row]
        self.score = regions.score[row].astype(np.float64)
        self.region_box = regions.box[row]
        self.bounds = np.searchsorted(region_class[row], np.arange(len(self.classes) + 1))
        self._region_key = region_key[row]

    @cached_property
    def pairs(self) -> Pairs:
        """Detections and objects of one class and image whose overlap is at least 0.5."""
        return self.pairs_over(COCO_IOUS[0])

    def pairs_over(self, iou: float) -> Pairs:
        """Detections and objects of one class and image whose overlap is at least `iou`."""
        # pycocotools lets an overlap of 1 pass a threshold of 1 that rounding has lifted; so do we.
        at_least = min(iou, 1 - 1e-10)
        return pairs(self.region_box, self._region_key, self.object_box, self._object_key, self.not_sought, at_least)

    def keeping(self, kept: np.ndarray) -> Labelled:
        """The same without some detections; overlaps are not computed again.

        Args:
            kept: ndarray of shape (N,), bool: a value for each detection of the table given. Which ones are an image's
                and a class's best-scored was decided before.
        """
        rows = kept[self.region_row]
        other = copy(self)
        for name in ("region_row", "region_image", "place", "score", "region_box", "_region_key"):
            setattr(other, name, getattr(self, name)[rows])
        other.bounds = np.append(0, np.cumsum(rows))[self.bounds]
        left = self.pairs[rows[self.pairs.region]]
        other.pairs = Pairs((np.cumsum(rows) - 1)[left.region], left.target, left.overlap)
        return other

    def matches(self, ious: Sequence[float] | np.ndarray, last_choice: np.ndarray) -> np.ndarray:
        """The object that each detection gets at each IoU threshold: rows of `object_row`, or −1; shape (T, n).

        Args:
            last_choice: Objects that are chosen only when there is no other, one bool an object.
        """
        candidates = self.pairs if min(ious) >= COCO_IOUS[0] else self.pairs_over(min(ious))
        candidates = candidates.preferred_first(last_choice, self._object_id)
        # Detections of one class stand in the order in which they choose.
        rank = np.arange(len(self.score))
        each = [assign(candidates[candidates.overlap >= min(i, 1 - 1e-10)], rank, self.not_sought) for i in ious]
        return np.stack(each)

    def sought(self, area_range: tuple[float, float] = ALL_AREAS) -> np.ndarray:
        """Which objects of `object_row` are to be found, ndarray of bool."""
        return ~self.not_sought & ~_outside(areas(self.object_box), area_range)

    def verdicts(self, ious: Sequence[float] | np.ndarray, area_range: tuple[float, float] = ALL_AREAS) -> Verdicts:
        """Matches detections to objects at each IoU threshold.

        Detections choose by falling confidence the free object of their class that they overlap most. Objects that are
        not sought, or whose area lies outside `area_range`, are chosen only when there is no other, and the detection
        is then ignored; so is an unmatched detection whose own area lies outside.
        """
        ignored_object = ~self.sought(area_range)
        ignored_region = _outside(areas(self.region_box), area_range)
        matched_at = self.matches(ious, ignored_object)
        kind = np.empty(matched_at.shape, dtype=np.int8)
        for row, matched in zip(kind, matched_at, strict=True):
            found = matched >= 0
            row[:] = np.where(ignored_region, IGNORED, FALSE)
            row[found] = np.where(ignored_object[matched[found]], IGNORED, TRUE)
        positives = np.bincount(self.object_class[~ignored_object], minlength=len(self.classes))
        return Verdicts(kind, self.place, self.score, self.bounds, positives)


def _outside(area: np.ndarray, limits: tuple[float, float]) -> np.ndarray:
    return (area < limits[0]) | (area > limits[1])


def _mean(values: np.ndarray) -> float | None:
    """Mean over the entries that are not NaN, None where all are."""
    values = np.asarray(values)[~np.isnan(values)]
    return float(np.mean(values)) if len(values) else None
