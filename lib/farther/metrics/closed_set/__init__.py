"""COCO's average precision and recall: detection and naming of the objects of known classes.

Metrics are those of pycocotools' `COCOeval` for boxes (Lin et al., 2014, arXiv:1405.0312), with an
object's area being that of its box. Crowds (COCO's iscrowd, OpenImages' groups) and objects that
Pascal VOC marks as difficult are not counted. A detection is ignored if enough of it lies in a
crowd (COCO's rule), or if its IoU with a difficult object is enough (Everingham et al., 2010,
Section 4.2.1, doi:10.1007/s11263-009-0275-4); any number of detections are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from farther.errors import DataError
from farther.metrics.closed_set.matched_detections import MatchedDetections
from farther.metrics.matching import assign, best_of_each_class, falling_in_groups
from farther.metrics.matching.boxes import (
    AREA_RANGES,
    ROWS,
    OverlapPairs,
    areas,
    image_numbers,
    pairs,
    places_among,
)
from farther.metrics.precision_recall import FALSE, IGNORED, TRUE
from farther.metrics.weighting import ImageWeights, mean_of_defined, plain, value
from farther.tables import Objects, Regions

#: IoU thresholds 0.50, 0.55, …, 0.95.
COCO_IOUS = np.linspace(0.5, 0.95, 10)

ALL_AREAS = (0.0, 1e10)


def evaluate(
    objects: Objects,
    regions: Regions,
    classes: Sequence[str] | None = None,
    max_detections: int = 100,
) -> dict[str, Any]:
    """COCO's metrics for boxes.

    Args:
        objects: Ground truth; objects of other classes are left out.
        regions: Detections, best stored at a low threshold.
        classes: Names of the known classes; those of `regions` without the background when None.
        max_detections: Best-scored detections per image and class that count.

    Returns:
        Fractions; None where there is no object.

        ap: Mean over classes with an object and over IoU 0.50 … 0.95 of the average precision.
        ap50, ap75: At IoU 0.5, 0.75.
        ap_small, ap_medium, ap_large: For objects up to 32², up to 96², and larger (square pixels).
        ar: Mean recall with at most `max_detections`; ar_1, ar_10: at most 1, 10; ar_small,
            ar_medium, ar_large.
        per_class: {class: {"ap", "ap50", "ar", "objects"}}.

    Raises:
        DataError: `classes` is empty or names a class twice.

    >>> from farther.tables import Objects, Regions
    >>> objects = Objects(image_id=["a"], object_id=[0], box=[[0, 0, 10, 10]], category=["cat"])
    >>> regions = Regions(
    ...     image_id=["a"],
    ...     region_id=[0],
    ...     box=[[0, 0, 10, 8]],
    ...     score=[0.9],
    ...     label=[0],
    ...     logits=[[2.0]],
    ...     classes=("cat",),
    ... )
    >>> found = evaluate(objects, regions)  # an IoU of 0.8 is enough at 7 of the 10 thresholds
    >>> found["ap50"], round(found["ap"], 6)
    (1.0, 0.7)
    """
    return Matches.of(ClosedSet.of(objects, regions, classes, max_detections)).evaluate()


@dataclass(frozen=True)
class Matches:
    """Detections and objects matched at `COCO_IOUS`: of all areas, and of each of `AREA_RANGES`; `of` matches them."""

    known: ClosedSet
    whole: MatchedDetections
    by_area: dict[str, MatchedDetections]

    @classmethod
    def of(cls, known: ClosedSet) -> Matches:
        """The matches of objects and detections whose overlaps are known."""
        by_area = {name: known.match(COCO_IOUS, limits) for name, limits in AREA_RANGES.items()}
        return cls(known, known.match(COCO_IOUS), by_area)

    def evaluate(self) -> dict[str, Any]:
        """The metrics of `farther.metrics.closed_set.evaluate`."""
        matched = self.whole
        ap, ar = matched.average_precision()[..., 0], matched.recall()[..., 0]
        return self.metrics() | {
            "per_class": {
                name: {
                    "ap": value(mean_of_defined(ap[:, k])),
                    "ap50": value(ap[0, k]),
                    "ar": value(mean_of_defined(ar[:, k])),
                    "objects": int(matched.positives[k]),
                }
                for k, name in enumerate(self.known.classes)
            }
        }

    def metrics(self, weights: ImageWeights | None = None) -> dict[str, Any]:
        """The twelve metrics of `evaluate`.

        Args:
            weights: How often each of `known.images` counts in each of B replicates, ndarray of
                shape (B, I); once when None.

        Returns:
            With weights ndarrays of shape (B,): means over the classes that have an object in the
                replicate, NaN where
            none has.
        """
        whole, by_area = self.whole, self.by_area
        ap = whole.average_precision(weights)
        found = {"ap": _mean(ap), "ap50": _mean(ap[:1]), "ap75": _mean(ap[5:6])}
        found |= {
            f"ap_{name}": _mean(matched.average_precision(weights))
            for name, matched in by_area.items()
        }
        found |= {"ar": _mean(whole.recall(weights))}
        found |= {f"ar_{most}": _mean(whole.recall(weights, most)) for most in (1, 10)}
        found |= {f"ar_{name}": _mean(matched.recall(weights)) for name, matched in by_area.items()}
        return plain(found) if weights is None else found


def _mean(values: np.ndarray) -> np.ndarray:
    """Mean over IoU thresholds and the classes that have a value, ndarray of shape (B,); NaN where none has."""
    return mean_of_defined(values, axis=(0, 1))


@dataclass(frozen=True)
class KnownDetections:
    """Detections of known classes, sorted by class, then falling score, then image, then `region_id`.

    Args:
        row: Their rows in the table of regions.
        image: Place of each one's image in `ClosedSet.images`.
        place: Number of better-scored detections of the same image and class.
        score: The detector's confidence, float32.
    """

    row: np.ndarray
    image: np.ndarray
    place: np.ndarray
    score: np.ndarray

    def __getitem__(self, rows: np.ndarray) -> KnownDetections:
        """The detections that a mask or an index array selects."""
        return KnownDetections(
            **{field.name: getattr(self, field.name)[rows] for field in fields(self)}
        )


@dataclass(frozen=True)
class ClosedSet:
    """Objects and detections of the known classes, and their overlaps; `ClosedSet.of` builds it.

    Args:
        classes: Names of the K known classes.
        images: Names of the images that have regions or objects, sorted.
        detections: The detections.
        bounds: Class k has detections bounds[k] … bounds[k + 1], ndarray of shape (K + 1,).
        boxes: Of all regions of the table, ndarray of shape (N, 4).
        object_row, object_class, object_image, object_box, object_id: Of the objects of known
        classes. is_crowd: Objects that stand for several, whose overlap is the share of a detection
        in them. is_ignored: Objects that are not counted (crowds, difficult ones). least: The
        smallest overlap of `pairs`. pairs: Detections and objects of one class and image that
        overlap by `least` or more.
    """

    classes: tuple[str, ...]
    images: np.ndarray
    detections: KnownDetections
    bounds: np.ndarray
    boxes: np.ndarray
    object_row: np.ndarray
    object_class: np.ndarray
    object_image: np.ndarray
    object_box: np.ndarray
    object_id: np.ndarray
    is_crowd: np.ndarray
    is_ignored: np.ndarray
    least: float
    pairs: OverlapPairs

    @classmethod
    def of(
        cls,
        objects: Objects,
        regions: Regions,
        classes: Sequence[str] | None = None,
        max_detections: int = 100,
        least: float = COCO_IOUS[0],
    ) -> ClosedSet:
        """The closed set of two tables; other arguments and errors as for `evaluate`.

        Args:
            least: The smallest overlap of `pairs`; detections are matched at smaller ones too, but
                in more time.
        """
        names = tuple(regions.header.known_classes if classes is None else classes)
        if not names or len(set(names)) != len(names):
            raise DataError(
                f"expected different names of classes, found {list(names)}", field="classes"
            )
        images, (region_image, object_image) = image_numbers(regions.image_id, objects.image_id)
        region_class = places_among(np.array(regions.classes, dtype=object), names)[regions.label]
        object_class = places_among(objects.category, names)
        object_row = np.flatnonzero(object_class >= 0).astype(np.int32)

        columns = regions.score, region_class, region_image, regions.region_id
        row, place = best_of_each_class(*columns, len(names), max_detections)
        detections = KnownDetections(
            row=row, image=region_image[row], place=place, score=regions.score[row]
        )
        unpaired = cls(
            classes=names,
            images=images,
            detections=detections,
            bounds=np.searchsorted(region_class[row], np.arange(len(names) + 1)),
            boxes=regions.box,
            object_row=object_row,
            object_class=object_class[object_row],
            object_image=object_image[object_row],
            object_box=objects.box[object_row],
            object_id=objects.object_id[object_row],
            is_crowd=objects.is_crowd[object_row],
            is_ignored=(objects.is_crowd | objects.is_difficult)[object_row],
            least=least,
            pairs=OverlapPairs.none(),
        )
        return replace(unpaired, pairs=unpaired.pairs_over(least))

    def pairs_over(self, iou: float) -> OverlapPairs:
        """Detections and objects of one class and image whose overlap is at least `iou`."""
        count = len(self.classes)
        region_class = np.repeat(np.arange(count, dtype=np.int32), np.diff(self.bounds))
        region_key = self.detections.image.astype(np.int64) * count + region_class
        object_key = self.object_image.astype(np.int64) * count + self.object_class
        # pycocotools lets an overlap of 1 pass a threshold of 1 that rounding has lifted; so does
        # this.
        least = min(iou, 1 - 1e-10)
        of_objects = self.object_box, object_key, self.is_crowd
        return pairs(self.boxes, region_key, *of_objects, least, self.detections.row)

    def keeping(self, kept: np.ndarray) -> ClosedSet:
        """The same without some detections; overlaps are not computed again.

        Args:
            kept: ndarray of shape (N,), bool: one per region of the table. Which detections are the
                best-scored of their image and class was decided before.
        """
        rows = kept[self.detections.row]
        if rows.all():
            return self
        return replace(
            self,
            detections=self.detections[rows],
            bounds=np.append(0, np.cumsum(rows))[self.bounds],
            pairs=self.pairs.keeping(rows),
        )

    def ranked_by(
        self,
        score: np.ndarray,
        kept: np.ndarray,
        number: np.ndarray,
        least: float,
        max_detections: int = 100,
    ) -> ClosedSet:
        """The same with other confidences, of a set that was made without a limit of detections.

        Args:
            score, number: Confidence (float32) and `region_id` of each region of the table,
                ndarrays of shape (N,).
            kept: The detections that stay, ndarray of shape (n,), bool.
            least: The smallest overlap of its pairs, which are not computed again.
            max_detections: As for `evaluate`.
        """
        stay = np.flatnonzero(kept)
        count = len(self.classes)
        of_class = np.repeat(np.arange(count, dtype=np.int32), np.diff(self.bounds))[stay]
        row, image = self.detections.row[stay], self.detections.image[stay]
        order, place = best_of_each_class(
            score[row], of_class, image, number[row], count, max_detections
        )
        left = self.pairs[self.pairs.overlap >= min(least, 1 - 1e-10)]
        return replace(
            self,
            detections=KnownDetections(
                row=row[order], image=image[order], place=place, score=score[row[order]]
            ),
            bounds=np.searchsorted(of_class[order], np.arange(count + 1)),
            least=least,
            pairs=left.moved(stay[order], len(kept)),
        )

    def joined(
        self,
        other: ClosedSet,
        images: np.ndarray,
        places: np.ndarray,
        first_row: int,
        first_object: int,
    ) -> ClosedSet:
        """This set and one of the same classes in other images as one, matched at overlaps of `least` or more; the
        boxes of regions, which take much memory, are left out unless some may be too large to
        count.

        Args:
            other: The other one.
            images: Names of the images of both, sorted.
            places: Place among these of each of this one's images and, after them, of the other's.
            first_row, first_object: Rows that the other's tables begin at in those of both.
        """
        count, parts = len(self.classes), (self.detections, other.detections)
        image = np.concatenate([places[parts[0].image], places[len(self.images) :][parts[1].image]])
        number = np.arange(count, dtype=np.int32)
        of_class = np.concatenate([np.repeat(number, np.diff(one.bounds)) for one in (self, other)])
        score = np.concatenate([part.score for part in parts])
        order = falling_in_groups(score, of_class, image, np.arange(len(score)))
        row = np.concatenate([parts[0].row, parts[1].row + np.int32(first_row)])
        place = np.concatenate([part.place for part in parts])
        both = self.pairs.joined(other.pairs, len(parts[0].row), len(self.object_row)).moved(order)
        names = "object_class", "object_box", "object_id", "is_crowd", "is_ignored"
        keep_boxes = any(_may_exceed(one.boxes, ALL_AREAS) for one in (self, other))
        return ClosedSet(
            classes=self.classes,
            images=images,
            detections=KnownDetections(row[order], image[order], place[order], score[order]),
            bounds=self.bounds + other.bounds,
            boxes=np.concatenate([self.boxes, other.boxes])
            if keep_boxes
            else self.boxes[:0].copy(),
            object_row=np.concatenate([self.object_row, other.object_row + np.int32(first_object)]),
            object_image=np.concatenate(
                [places[self.object_image], places[len(self.images) :][other.object_image]]
            ),
            **{name: np.concatenate([getattr(self, name), getattr(other, name)]) for name in names},
            least=max(self.least, other.least),
            pairs=both,
        )

    def assigned(
        self, ious: Sequence[float] | np.ndarray, last_choice: np.ndarray
    ) -> Iterator[np.ndarray]:
        """The object of each detection at each IoU threshold: rows of `object_row`, or −1, ndarrays of shape (n,).

        Args:
            last_choice: Objects that are chosen only when there is no other, one bool per object.
        """
        candidates = self.pairs if min(ious) >= self.least else self.pairs_over(min(ious))
        candidates = candidates.preferred_first(last_choice, self.object_id)
        # Detections of one class are sorted in the order in which they choose.
        rank = np.arange(len(self.detections.score), dtype=np.int32)
        return (
            assign(candidates[candidates.overlap >= min(i, 1 - 1e-10)], rank, self.is_ignored)
            for i in ious
        )

    def counted(self, area_range: tuple[float, float] = ALL_AREAS) -> np.ndarray:
        """Objects of `object_row` that are counted, ndarray of bool."""
        return ~self.is_ignored & ~_outside(areas(self.object_box), area_range)

    def match_once(self, iou: float) -> tuple[MatchedDetections, np.ndarray]:
        """As `match`, at one IoU threshold; and the object of each detection: rows of `object_row`, or −1."""
        target = next(self.assigned([iou], ~self.counted()))
        return self._matched([target], 1, ALL_AREAS), target

    def match(
        self, ious: Sequence[float] | np.ndarray, area_range: tuple[float, float] = ALL_AREAS
    ) -> MatchedDetections:
        """Matches detections to objects at each IoU threshold.

        Detections choose by falling confidence the free object of their class that they overlap
        most. Objects that are not counted, or whose area lies outside `area_range`, are chosen only
        when there is no other, and the detection is then ignored; so is an unmatched detection
        whose own area lies outside.
        """
        return self._matched(self.assigned(ious, ~self.counted(area_range)), len(ious), area_range)

    def _matched(
        self, targets: Iterable[np.ndarray], thresholds: int, area_range: tuple[float, float]
    ) -> MatchedDetections:
        counted = self.counted(area_range)
        ignored_region = np.zeros(len(self.detections.row), dtype=bool)
        if area_range != ALL_AREAS or _may_exceed(self.boxes, ALL_AREAS):
            batches = np.array_split(self.detections.row, 1 + len(self.detections.row) // ROWS)
            ignored_region = np.concatenate(
                [_outside(areas(self.boxes[rows]), area_range) for rows in batches]
            )
        kind = np.empty((thresholds, len(self.detections.score)), dtype=np.int8)
        for row, target in zip(kind, targets, strict=True):
            found = target >= 0
            row[:] = FALSE
            row[ignored_region] = IGNORED
            row[found] = np.where(counted[target[found]], TRUE, IGNORED)
        return MatchedDetections(
            kind=kind,
            place=self.detections.place,
            score=self.detections.score,
            image=self.detections.image,
            bounds=self.bounds,
            object_class=self.object_class[counted],
            object_image=self.object_image[counted],
            images=len(self.images),
        )


def _outside(area: np.ndarray, limits: tuple[float, float]) -> np.ndarray:
    return (area < limits[0]) | (area > limits[1])


def _may_exceed(boxes: np.ndarray, limits: tuple[float, float]) -> bool:
    """Whether a box may be larger than the upper limit, by the largest difference of two coordinates."""
    return len(boxes) > 0 and float(np.ptp(boxes)) ** 2 > limits[1]
