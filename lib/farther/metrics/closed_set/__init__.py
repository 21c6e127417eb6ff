"""COCO's average precision and recall: detection and naming of the objects of known classes.

Metrics are those of pycocotools' `COCOeval` for boxes (Lin et al., 2014, arXiv:1405.0312), with an
object's area being that of its box. Crowds (COCO's iscrowd, OpenImages' groups) and objects that
Pascal VOC marks as difficult are not counted. A detection is ignored if enough of it lies in a
crowd (COCO's rule), or if its IoU with a difficult object is enough (Everingham et al., 2010,
Section 4.2.1, doi:10.1007/s11263-009-0275-4); any number of detections are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from farther.errors import DataError, shorten
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
from farther.tables.arguments import class_names, instance, whole_number

#: IoU thresholds 0.50, 0.55, …, 0.95.
COCO_IOUS = np.linspace(0.5, 0.95, 10)

ALL_AREAS = (0.0, 1e10)

#: pycocotools lets an overlap of 1 pass a threshold of 1 that rounding has lifted; so does this.
LARGEST_IOU = 1 - 1e-10


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
        classes: Names of the known classes; those of `regions` without the background when None,
            see `known_class_names`.
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
        DataError: see `known_class_names`.

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
    >>> metrics = evaluate(objects, regions)  # an IoU of 0.8 is enough at 7 of the 10 thresholds
    >>> metrics["ap50"], round(metrics["ap"], 6)
    (1.0, 0.7)
    """
    known = ClosedSet.of(objects, regions, classes, max_detections)
    return Matches.of(known).evaluate()


def known_class_names(
    objects: Objects, regions: Regions, classes: Sequence[str] | None = None
) -> tuple[str, ...]:
    """Names of the known classes, whose objects count.

    Where the classes of `regions` are only those that occur in them (`Header.are_observed`), the
    classes of the objects are known, too: an object of a class that was never detected is missed.

    Args:
        objects: Ground truth.
        regions: Detections.
        classes: The names, if they are given.

    Raises:
        DataError: `classes` is empty or names a class twice; or the detections have numbers of
            classes, and the objects names.
    """
    if classes is not None:
        names = tuple(class_names(classes))
        if not names or len(set(names)) != len(names):
            problem = f"expected different names of classes, found {list(names)}"
            raise DataError(problem, field="classes")
        return names
    known = tuple(regions.header.known_classes)
    if not regions.header.are_observed:
        return known
    categories = set(objects.category[~objects.is_unlabelled])
    are_numbers = all(name.isdecimal() for name in known)
    if known and are_numbers and categories and categories.isdisjoint(known):
        named = sorted(categories)
        if not all(name.isdecimal() for name in named):
            examples = ", ".join(shorten(name) for name in named[:3])
            problem = (
                f"the detections have numbers of classes ({', '.join(known[:3])}), the objects "
                f"names ({examples}): give `classes` to both"
            )
            raise DataError(problem, field="classes")
    return (*known, *sorted(categories - set(known)))


@dataclass(frozen=True)
class Matches:
    """Detections and objects matched at `COCO_IOUS`; `Matches.of` matches them.

    Args:
        known: Objects and detections whose overlaps are known.
        whole: Matches of objects of all areas.
        by_area: Matches of the objects of each of `AREA_RANGES`.
    """

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
        ap = self.whole.average_precision()[..., 0]
        recall = self.whole.recall()[..., 0]
        per_class = {}
        for k, name in enumerate(self.known.classes):
            per_class[name] = {
                "ap": value(mean_of_defined(ap[:, k])),
                "ap50": value(ap[0, k]),
                "ar": value(mean_of_defined(recall[:, k])),
                "objects": int(self.whole.positives[k]),
            }
        return self.metrics() | {"per_class": per_class}

    def metrics(self, weights: ImageWeights | None = None) -> dict[str, Any]:
        """The twelve metrics of `evaluate`.

        Args:
            weights: How often each of `known.images` counts in each of B replicates, ndarray of
                shape (B, I); once when None.

        Returns:
            With weights ndarrays of shape (B,): means over the classes that have an object in the
            replicate, NaN where none has.
        """
        ap = self.whole.average_precision(weights)
        values = {"ap": _mean(ap), "ap50": _mean(ap[:1]), "ap75": _mean(ap[5:6])}
        for name, matched in self.by_area.items():
            values[f"ap_{name}"] = _mean(matched.average_precision(weights))
        values["ar"] = _mean(self.whole.recall(weights))
        for max_detections in (1, 10):
            recall = self.whole.recall(weights, max_detections)
            values[f"ar_{max_detections}"] = _mean(recall)
        for name, matched in self.by_area.items():
            values[f"ar_{name}"] = _mean(matched.recall(weights))
        return plain(values) if weights is None else values


def _mean(values: np.ndarray) -> np.ndarray:
    """Mean over IoU thresholds and the classes that have a value; NaN where none has.

    Args:
        values: ndarray of shape (T, K, B).

    Returns:
        ndarray of shape (B,).
    """
    return mean_of_defined(values, axis=(0, 1))


@dataclass(frozen=True)
class KnownDetections:
    """Detections of known classes, sorted by class, then falling score, then image and number.

    Args:
        row: Their rows in the table of regions.
        image: Index of each one's image in `ClosedSet.images`.
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
            row=self.row[rows],
            image=self.image[rows],
            place=self.place[rows],
            score=self.score[rows],
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
            classes.
        is_crowd: Objects that stand for several, whose overlap is the share of a detection in them.
        is_ignored: Objects that are not counted (crowds, difficult ones).
        smallest_overlap: The smallest overlap of `pairs`.
        pairs: Detections and objects of one class and image that overlap by that much or more.
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
    smallest_overlap: float
    pairs: OverlapPairs

    @classmethod
    def of(
        cls,
        objects: Objects,
        regions: Regions,
        classes: Sequence[str] | None = None,
        max_detections: int = 100,
        smallest_overlap: float = COCO_IOUS[0],
    ) -> ClosedSet:
        """The closed set of two tables.

        Args:
            objects, regions, classes, max_detections: see `evaluate`.
            smallest_overlap: The smallest overlap of `pairs`; detections are matched at smaller
                ones too, but in more time.

        Raises:
            DataError: see `known_class_names`.
        """
        instance(objects, Objects, "objects")
        instance(regions, Regions, "regions")
        max_detections = whole_number(max_detections, "max_detections", at_least=0)
        names = known_class_names(objects, regions, classes)
        images, (region_image, object_image) = image_numbers(regions.image_id, objects.image_id)
        class_of_label = places_among(np.array(regions.classes, dtype=object), names)
        region_class = class_of_label[regions.label]
        row, place = best_of_each_class(
            regions.score,
            region_class,
            region_image,
            regions.region_id,
            len(names),
            max_detections,
        )
        detections = KnownDetections(
            row=row, image=region_image[row], place=place, score=regions.score[row]
        )

        object_class = places_among(objects.category, names)
        object_row = np.flatnonzero(object_class >= 0).astype(np.int32)
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
            smallest_overlap=smallest_overlap,
            pairs=OverlapPairs.none(),
        )
        return replace(unpaired, pairs=unpaired.pairs_over(smallest_overlap))

    @property
    def detected_class(self) -> np.ndarray:
        """Index of the class of each detection, ndarray of shape (n,), int32."""
        return np.repeat(np.arange(len(self.classes), dtype=np.int32), np.diff(self.bounds))

    def pairs_over(self, iou: float) -> OverlapPairs:
        """Detections and objects of one class and image whose overlap is at least `iou`."""
        count = len(self.classes)
        region_key = self.detections.image.astype(np.int64) * count + self.detected_class
        object_key = self.object_image.astype(np.int64) * count + self.object_class
        return pairs(
            self.boxes,
            region_key,
            self.object_box,
            object_key,
            self.is_crowd,
            min(iou, LARGEST_IOU),
            self.detections.row,
        )

    def keeping(self, mask: np.ndarray) -> ClosedSet:
        """The same without some detections; overlaps are not computed again.

        Args:
            mask: ndarray of shape (N,), bool: one per region of the table. Which detections are the
                best-scored of their image and class was decided before.
        """
        is_kept = mask[self.detections.row]
        if is_kept.all():
            return self
        kept_so_far = np.append(0, np.cumsum(is_kept))
        return replace(
            self,
            detections=self.detections[is_kept],
            bounds=kept_so_far[self.bounds],
            pairs=self.pairs.keeping(is_kept),
        )

    def ranked_by(
        self,
        score: np.ndarray,
        mask: np.ndarray,
        number: np.ndarray,
        smallest_overlap: float,
        max_detections: int = 100,
    ) -> ClosedSet:
        """The same with other confidences, of a set that was made without a limit of detections.

        Args:
            score: Confidence of each region of the table, ndarray of shape (N,), float32.
            mask: The detections that stay, ndarray of shape (n,), bool.
            number: `region_id` of each region of the table, ndarray of shape (N,).
            smallest_overlap: The smallest overlap of its pairs, which are not computed again.
            max_detections: As for `evaluate`.
        """
        old_rows = np.flatnonzero(mask)
        detected_class = self.detected_class[old_rows]
        row = self.detections.row[old_rows]
        image = self.detections.image[old_rows]
        order, place = best_of_each_class(
            score[row], detected_class, image, number[row], len(self.classes), max_detections
        )
        detections = KnownDetections(
            row=row[order], image=image[order], place=place, score=score[row[order]]
        )
        overlaps_enough = self.pairs.overlap >= min(smallest_overlap, LARGEST_IOU)
        return replace(
            self,
            detections=detections,
            bounds=np.searchsorted(detected_class[order], np.arange(len(self.classes) + 1)),
            smallest_overlap=smallest_overlap,
            pairs=self.pairs[overlaps_enough].moved(old_rows[order], len(mask)),
        )

    def joined(
        self,
        other: ClosedSet,
        images: np.ndarray,
        places: np.ndarray,
        first_row: int,
        first_object: int,
    ) -> ClosedSet:
        """This set and one of the same classes in other images as one.

        It is matched at overlaps of `smallest_overlap` or more. The boxes of regions, which take
        much memory, are left out unless some may be too large to count.

        Args:
            other: The other set.
            images: Names of the images of both, sorted.
            places: Index in `images` of each of this set's images and, after them, of the other's.
            first_row, first_object: Rows that the other's tables begin at in those of both.
        """
        own_places = places[: len(self.images)]
        other_places = places[len(self.images) :]

        def both(name: str) -> np.ndarray:
            return np.concatenate([getattr(self, name), getattr(other, name)])

        image = np.concatenate(
            [own_places[self.detections.image], other_places[other.detections.image]]
        )
        score = np.concatenate([self.detections.score, other.detections.score])
        row = np.concatenate([self.detections.row, other.detections.row + np.int32(first_row)])
        place = np.concatenate([self.detections.place, other.detections.place])
        detected_class = np.concatenate([self.detected_class, other.detected_class])
        order = falling_in_groups(score, detected_class, image, np.arange(len(score)))
        detections = KnownDetections(
            row=row[order], image=image[order], place=place[order], score=score[order]
        )

        boxes = self.boxes[:0].copy()
        if _may_exceed(self.boxes, ALL_AREAS) or _may_exceed(other.boxes, ALL_AREAS):
            boxes = both("boxes")
        joined_pairs = self.pairs.joined(
            other.pairs, len(self.detections.row), len(self.object_row)
        )
        object_row = [self.object_row, other.object_row + np.int32(first_object)]
        object_image = [own_places[self.object_image], other_places[other.object_image]]
        return ClosedSet(
            classes=self.classes,
            images=images,
            detections=detections,
            bounds=self.bounds + other.bounds,
            boxes=boxes,
            object_row=np.concatenate(object_row),
            object_class=both("object_class"),
            object_image=np.concatenate(object_image),
            object_box=both("object_box"),
            object_id=both("object_id"),
            is_crowd=both("is_crowd"),
            is_ignored=both("is_ignored"),
            smallest_overlap=max(self.smallest_overlap, other.smallest_overlap),
            pairs=joined_pairs.moved(order),
        )

    def candidates(self, iou: float, last_choice: np.ndarray) -> OverlapPairs:
        """Detections and the objects of their class that they may match, the preferred first.

        Args:
            iou: Smallest IoU.
            last_choice: See `assigned`.
        """
        pairs = self.pairs
        if iou < self.smallest_overlap:
            pairs = self.pairs_over(iou)
        overlaps_enough = pairs.overlap >= min(iou, LARGEST_IOU)
        return pairs[overlaps_enough].preferred_first(last_choice, self.object_id)

    def assigned(
        self, ious: Sequence[float] | np.ndarray, last_choice: np.ndarray
    ) -> Iterator[np.ndarray]:
        """The object of each detection at each IoU threshold.

        Args:
            ious: IoU thresholds.
            last_choice: Objects that are chosen only when there is no other, one bool per object.

        Yields:
            Rows of `object_row`, or −1, ndarray of shape (n,).
        """
        candidates = self.candidates(min(ious), last_choice)
        # Detections of one class are sorted in the order in which they choose.
        rank = np.arange(len(self.detections.score), dtype=np.int32)
        for iou in ious:
            overlaps_enough = candidates.overlap >= min(iou, LARGEST_IOU)
            yield assign(candidates[overlaps_enough], rank, self.is_ignored)

    def counted(self, area_range: tuple[float, float] = ALL_AREAS) -> np.ndarray:
        """Objects of `object_row` that are counted, ndarray of bool."""
        return ~self.is_ignored & ~_outside(areas(self.object_box), area_range)

    def match_once(self, iou: float) -> tuple[MatchedDetections, np.ndarray]:
        """As `match`, at one IoU threshold.

        Returns:
            The matched detections; and the object of each: a row of `object_row`, or −1, ndarray of
            shape (n,).
        """
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
        targets = self.assigned(ious, ~self.counted(area_range))
        return self._matched(targets, len(ious), area_range)

    def _matched(
        self, targets: Iterable[np.ndarray], thresholds: int, area_range: tuple[float, float]
    ) -> MatchedDetections:
        """Detections whose objects at each IoU threshold are known.

        Args:
            targets: See `assigned`, one array per threshold.
            thresholds: Number of thresholds, T.
            area_range: See `match`.
        """
        is_counted = self.counted(area_range)
        has_ignored_area = self._ignored_by_area(area_range)
        kind = np.empty((thresholds, len(self.detections.score)), dtype=np.int8)
        for kind_at_iou, target in zip(kind, targets, strict=True):
            is_matched = target >= 0
            kind_at_iou[:] = FALSE
            kind_at_iou[has_ignored_area] = IGNORED
            kind_at_iou[is_matched] = np.where(is_counted[target[is_matched]], TRUE, IGNORED)
        return MatchedDetections(
            kind=kind,
            place=self.detections.place,
            score=self.detections.score,
            image=self.detections.image,
            bounds=self.bounds,
            object_class=self.object_class[is_counted],
            object_image=self.object_image[is_counted],
            images=len(self.images),
        )

    def _ignored_by_area(self, area_range: tuple[float, float]) -> np.ndarray:
        """Detections whose own area lies outside a range, ndarray of shape (n,), bool."""
        rows = self.detections.row
        if area_range == ALL_AREAS and not _may_exceed(self.boxes, ALL_AREAS):
            return np.zeros(len(rows), dtype=bool)
        is_outside = []
        for batch in np.array_split(rows, 1 + len(rows) // ROWS):
            area = areas(self.boxes[batch])
            is_outside.append(_outside(area, area_range))
        return np.concatenate(is_outside)


def _outside(area: np.ndarray, limits: tuple[float, float]) -> np.ndarray:
    return (area < limits[0]) | (area > limits[1])


def _may_exceed(boxes: np.ndarray, limits: tuple[float, float]) -> bool:
    """Whether a box may be larger than the upper limit.

    Judged by the largest difference of two coordinates.
    """
    return len(boxes) > 0 and float(np.ptp(boxes)) ** 2 > limits[1]
