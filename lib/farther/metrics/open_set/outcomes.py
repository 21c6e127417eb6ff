"""Matching of regions flagged as unknown or kept as known to unknown objects: the outcome of each.

Under `protocol="paper"`, at an IoU threshold of 0.5 (≥):

- Regions flagged as unknown choose by falling detector confidence the free unknown object they
  overlap most, one to one. A region that gets one is a true positive (TP_U), any other flagged one
  a false positive (FP_U).
- An unknown object that no flagged region got is *misclassified* (FN^M) if a kept region overlaps
  it enough, else *missed* (FN^D). Each unknown object is counted exactly once, however many regions
  lie on it; one kept region may misclassify two objects that overlap each other. So TP_U + FN^D +
  FN^M is the number of unknown objects.
- Absolute open-set error AOSE = FN^M, and nOSE = AOSE / unknown objects (Eq. 9), never above 1.
- AP_U ranks the flagged regions by `unknown_score` where it is given, else by confidence. Which
  regions are true was decided before and does not depend on that ranking.
- Where `known_classes` names categories of the same images, a kept region on an object of its own
  class misclassifies nothing, and a flagged region on a known object is a false positive.
- Crowd and group boxes, and Pascal VOC's difficult objects, are not counted: a flagged region that
  gets no object is ignored if enough of its area lies in a crowd (COCO's rule), or if its IoU with
  a difficult object is enough (VOC's). All regions of images that were not annotated
  (`Objects.is_unlabelled`) are ignored.

`protocol="published-code"` does what the code published with FMIYC does, to reproduce its tables:

- confidence is the largest softmax probability of the stored logits among the known classes,
  rounded to 0.001; of equal ones the image whose name comes first, then the smaller `region_id`, is
  first. The code's own sort is not stable, so its AP_U depends on the machine, by up to 0.003 with
  FMIYC's detections;
- boxes follow Pascal VOC's convention: those of regions are moved by +1 pixel in xmin and ymin and
  rounded to 0.1, and every width and height is one pixel more than the difference of the edges;
- IoU must be *above* the threshold; a flagged region is true only if the object it overlaps *most*
  is still free;
- AP_U ranks by confidence, whatever `unknown_score` is;
- AOSE counts *regions* kept as known that overlap an unknown object, several per object: nOSE can
  be above 1;
- regions of images without any annotation are ignored.

Crowds are left out there as under "paper": the dataset that the code reads marks none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import get_args

import numpy as np

from farther.errors import DataError, ParameterError
from farther.metrics.matching import assign, ranks
from farther.metrics.matching.boxes import (
    AREA_RANGES,
    OverlapPairs,
    areas,
    image_numbers,
    is_among,
    pairs,
    places_among,
)
from farther.tables import ObjectOutcomes, Objects, RegionOutcomes, Regions
from farther.tables.arguments import booleans, floats, instance, number, one_of, texts
from farther.terms import Protocol

#: Outcomes of an object.
FOUND, MISCLASSIFIED, MISSED, NOT_COUNTED = 0, 1, 2, 3
#: Kinds of a region.
TRUE_UNKNOWN, FALSE_UNKNOWN, KEPT, IGNORED = 0, 1, 2, 3

#: Names of the outcomes of objects and of the kinds of regions in tables, in the order of their
#: numbers.
_OBJECT_NAMES = np.array(["found", "misclassified", "missed", "not_counted"], dtype=object)
_REGION_NAMES = np.array(["found", "false_unknown", "known", "ignored"], dtype=object)


def sizes_of(box: np.ndarray) -> np.ndarray:
    """COCO's area range of boxes: "small", "medium" or "large".

    Args:
        box: ndarray of shape (M, 4).

    Returns:
        Object array of shape (M,).

    Raises:
        DataError: `box` has another shape, or is not of numbers.
    """
    box = floats(box, "box", shape=(None, 4))
    upper_limits = [upper for _, upper in AREA_RANGES.values()]
    range_index = np.searchsorted(upper_limits[:-1], areas(box), side="left")
    return np.array(list(AREA_RANGES), dtype=object)[range_index]


@dataclass(frozen=True)
class MatchingRules:
    """Rules by which regions are matched to objects.

    Args:
        iou: Smallest IoU of a region and an object.
        protocol: see the module.
        known_classes: Categories of the objects that the detector was trained on; all are unknown
            when empty.

    Raises:
        ParameterError: the protocol is unknown, or the IoU is not above 0 and at most 1.
    """

    iou: float = 0.5
    protocol: Protocol = "paper"
    known_classes: Sequence[str] = ()

    def __post_init__(self) -> None:
        one_of(self.protocol, get_args(Protocol), "protocol")
        object.__setattr__(self, "iou", number(self.iou, "iou", above=0, at_most=1))
        known_classes = tuple(texts(self.known_classes, "known_classes", any_order=True))
        object.__setattr__(self, "known_classes", known_classes)

    @property
    def smallest_overlap(self) -> float:
        """The smallest overlap that counts; the published code needs more than the threshold."""
        if self.protocol == "published-code":
            return float(np.nextafter(self.iou, 2))
        return self.iou


@dataclass(frozen=True)
class RankedRegions:
    """The columns of a split's N regions that matching needs; one entry per region.

    Args:
        confidence: The score that regions are ranked by, float32 or float64.
        rank: Position in that ranking, int32; equal confidences by image and `region_id`.
        image: Index of the region's image in `OpenSetSplit.images`.
        counted: False for regions that the protocol ignores.
        label: The class that the region was detected as, an index into `classes`.
        classes: Names of the classes.
    """

    confidence: np.ndarray
    rank: np.ndarray
    image: np.ndarray
    counted: np.ndarray
    label: np.ndarray
    classes: tuple[str, ...]

    def __getitem__(self, rows: np.ndarray) -> RankedRegions:
        """The regions that a mask selects; their ranks close up."""
        columns = {}
        for field in fields(self):
            if field.name != "classes":
                columns[field.name] = getattr(self, field.name)[rows]

        is_selected_rank = np.zeros(len(self.rank), dtype=bool)
        is_selected_rank[columns["rank"]] = True
        new_rank = np.cumsum(is_selected_rank, dtype=np.int32) - 1
        columns["rank"] = new_rank[columns["rank"]]
        return RankedRegions(**columns, classes=self.classes)


@dataclass(frozen=True)
class OpenSetSplit:
    """A split's objects and regions with their overlaps, computed once for all methods.

    `OpenSetSplit.of` builds it.

    Args:
        settings: How regions are matched.
        objects: M objects of the split.
        images: Names of the images that have regions or objects, sorted.
        object_image: Index of each object's image in `images`, ndarray of shape (M,).
        object_class: Index of each object's category in `detections.classes`, −1 for others,
            ndarray of shape (M,).
        is_ignored: Objects that are not counted (crowds, difficult ones), ndarray of shape (M,),
            bool.
        is_known: Objects of known classes, ndarray of shape (M,), bool.
        detections: The split's N regions.
        candidates: Pairs of a region and an object that overlap enough.
    """

    settings: MatchingRules
    objects: Objects
    images: np.ndarray
    object_image: np.ndarray
    object_class: np.ndarray
    is_ignored: np.ndarray
    is_known: np.ndarray
    detections: RankedRegions
    candidates: OverlapPairs

    @classmethod
    def of(
        cls, objects: Objects, regions: Regions, settings: MatchingRules | None = None
    ) -> OpenSetSplit:
        """Builds the split from two tables: ground truth, and the regions from t* on.

        Args:
            objects: Ground truth of M objects.
            regions: N regions in the same images, at or above the operating threshold t*.
            settings: IoU threshold, protocol and further rules of matching; those of the paper when
                None.
        """
        instance(objects, Objects, "objects")
        instance(regions, Regions, "regions")
        if settings is None:
            settings = MatchingRules()
        instance(settings, MatchingRules, "settings")
        images, (region_image, object_image) = image_numbers(regions.image_id, objects.image_id)
        is_ignored = objects.is_crowd | objects.is_difficult

        region_box = regions.box
        object_box = objects.box
        confidence = regions.score
        counted = np.ones(len(regions), dtype=bool)
        if settings.protocol == "published-code":
            region_box = _voc_boxes(region_box)
            object_box = _plus_one_pixel(object_box)
            confidence = _softmax_confidence(regions)
            objects_per_image = np.bincount(object_image, minlength=len(images))
            counted = (objects_per_image > 0)[region_image]

        is_unlabelled = np.zeros(len(images), dtype=bool)
        is_unlabelled[object_image[objects.is_unlabelled]] = True
        counted &= ~is_unlabelled[region_image]

        candidates = pairs(
            region_box,
            region_image,
            object_box,
            object_image,
            objects.is_crowd,
            settings.smallest_overlap,
        )
        detections = RankedRegions(
            confidence=confidence,
            rank=ranks(confidence, region_image, regions.region_id),
            image=region_image,
            counted=counted,
            label=regions.label,
            classes=tuple(regions.classes),
        )
        return cls(
            settings=settings,
            objects=objects,
            images=images,
            object_image=object_image,
            object_class=places_among(objects.category, regions.classes),
            is_ignored=is_ignored,
            is_known=is_among(objects.category, settings.known_classes),
            detections=detections,
            candidates=candidates.preferred_first(is_ignored, objects.object_id),
        )

    @property
    def is_counted(self) -> np.ndarray:
        """Unknown objects that are counted, ndarray of shape (M,), bool."""
        return ~self.is_known & ~self.is_ignored

    @property
    def on_unknown(self) -> np.ndarray:
        """Regions that overlap a counted unknown object enough, ndarray of shape (N,), bool."""
        is_on_unknown_object = self.is_counted[self.candidates.target]
        is_on_unknown = np.zeros(len(self.detections.rank), dtype=bool)
        is_on_unknown[self.candidates.region[is_on_unknown_object]] = True
        return is_on_unknown

    @cached_property
    def correctly_known(self) -> np.ndarray:
        """Regions on a known object of their own class, ndarray of shape (N,), bool.

        None under "published-code", which counts a kept region on an unknown object even if it lies
        on one of its class as well.
        """
        is_correct = np.zeros(len(self.detections.rank), dtype=bool)
        if self.settings.protocol == "paper":
            on_known = self.candidates[self.is_known[self.candidates.target]]
            region_class = self.detections.label[on_known.region]
            has_own_class = region_class == self.object_class[on_known.target]
            is_correct[on_known.region[has_own_class]] = True
        return is_correct

    def sizes(self) -> np.ndarray:
        """COCO's area range of each object, object array of shape (M,).

        "small", "medium" or "large".
        """
        return sizes_of(self.objects.box)

    def supercategories(self, names: Mapping[str, str]) -> np.ndarray:
        """The supercategory of each object, object array of shape (M,).

        Args:
            names: Category → supercategory; objects of other categories get "".
        """
        supercategory = [names.get(category, "") for category in self.objects.category]
        return np.array(supercategory, dtype=object)

    def keeping(self, kept: np.ndarray) -> OpenSetSplit:
        """The same split without some regions, as at a higher operating threshold.

        Overlaps are not computed again.

        Args:
            kept: ndarray of shape (N,), bool.

        Raises:
            DataError: `kept` is not one bool per region.
        """
        rows = self._checked_flags(kept, "kept")
        return replace(
            self, detections=self.detections[rows], candidates=self.candidates.keeping(rows)
        )

    def at(self, iou: float) -> OpenSetSplit:
        """The same split at a larger IoU threshold; overlaps are not computed again.

        Args:
            iou: At least the split's own, at most 1.

        Raises:
            ParameterError: the threshold is smaller than that of the split, or above 1.
        """
        iou = number(iou, "iou")
        if not self.settings.iou <= iou <= 1:
            raise ParameterError(
                f"an IoU threshold of this split is from {self.settings.iou:g} to 1, found {iou:g}"
            )
        settings = replace(self.settings, iou=iou)
        overlaps_enough = self.candidates.overlap >= settings.smallest_overlap
        return replace(self, settings=settings, candidates=self.candidates[overlaps_enough])

    def _checked_flags(self, values: np.ndarray, field: str) -> np.ndarray:
        """One bool per region, or an error."""
        return booleans(values, field, shape=self.detections.rank.shape)

    def match(self, is_unknown: np.ndarray) -> Outcome:
        """The outcome of each object and each region when these regions are flagged as unknown.

        Args:
            is_unknown: ndarray of shape (N,), bool: the regions that a method flags.

        Raises:
            DataError: `is_unknown` is not one bool per region.
        """
        flagged = self._checked_flags(is_unknown, "is_unknown")
        on_unknown = self.candidates[self.is_counted[self.candidates.target]]
        matched = self._match_flagged(flagged, on_unknown)
        kind = self._kinds(flagged, matched)

        may_misclassify = (kind == KEPT) & ~self.correctly_known
        misclassifying = on_unknown[may_misclassify[on_unknown.region]]
        misclassifies = np.zeros(len(kind), dtype=bool)
        misclassifies[misclassifying.region] = True

        of_object = np.where(self.is_counted, np.int8(MISSED), np.int8(NOT_COUNTED))
        of_object[misclassifying.target] = MISCLASSIFIED
        of_object[matched[matched >= 0]] = FOUND
        return Outcome(self, of_object, kind, matched, misclassifies)

    def _match_flagged(self, flagged: np.ndarray, on_unknown: OverlapPairs) -> np.ndarray:
        """The unknown object that each flagged region matches, −1 for none, shape (N,).

        Args:
            flagged: ndarray of shape (N,), bool.
            on_unknown: The candidates whose object is unknown and counted.
        """
        may_match = flagged & self.detections.counted
        of_flagged = on_unknown[may_match[on_unknown.region]]
        if self.settings.protocol == "published-code":
            of_flagged = of_flagged.first_of_each_region()
        no_object_twice = np.zeros(len(self.is_ignored), dtype=bool)
        return assign(of_flagged, self.detections.rank, no_object_twice)

    def _kinds(self, flagged: np.ndarray, matched: np.ndarray) -> np.ndarray:
        """The kind of each region, ndarray of shape (N,), int8; see `Outcome`."""
        kind = np.where(flagged, np.int8(FALSE_UNKNOWN), np.int8(KEPT))
        on_ignored = self.candidates.region[self.is_ignored[self.candidates.target]]
        kind[on_ignored] = np.where(flagged[on_ignored], IGNORED, KEPT)
        kind[matched >= 0] = TRUE_UNKNOWN
        kind[~self.detections.counted] = IGNORED
        return kind


@dataclass(frozen=True)
class Outcome:
    """The outcome of each object and each region of a split; `OpenSetSplit.match` builds it.

    Args:
        split: The split that was matched.
        of_object: ndarray of shape (M,), int8: FOUND, MISCLASSIFIED, MISSED, or NOT_COUNTED (crowds
            and known objects).
        kind: ndarray of shape (N,), int8: TRUE_UNKNOWN, FALSE_UNKNOWN, KEPT, or IGNORED.
        matched: ndarray of shape (N,), int32: the object of a true unknown region, else −1.
        misclassifies: ndarray of shape (N,), bool: kept regions that lie on an unknown object.
    """

    split: OpenSetSplit
    of_object: np.ndarray
    kind: np.ndarray
    matched: np.ndarray
    misclassifies: np.ndarray

    def ranked(self, chosen: np.ndarray, unknown_score: np.ndarray | None = None) -> np.ndarray:
        """Rows of the regions that a mask selects, the best ranked first.

        Args:
            chosen: ndarray of shape (N,), bool.
            unknown_score: ndarray of shape (N,), higher first; the confidence when None, and under
                "published-code".

        Raises:
            DataError: `unknown_score` is not one number per region.
        """
        ranking_score = self.split.detections.confidence
        if unknown_score is not None:
            unknown_score = floats(unknown_score, "unknown_score", shape=self.kind.shape)
            if self.split.settings.protocol == "paper":
                ranking_score = unknown_score
        rows = np.flatnonzero(chosen)
        # Equal scores follow the confidence, and equal confidences the numbers of images and
        # regions.
        order = np.lexsort((self.split.detections.rank[rows], -ranking_score[rows]))
        return rows[order]

    def tables(self, regions: Regions) -> tuple[RegionOutcomes, ObjectOutcomes]:
        """The outcomes of regions and of objects as tables.

        Args:
            regions: The regions that were matched.
        """
        objects = self.split.objects
        region_outcome = _REGION_NAMES[self.kind]
        region_outcome[self.misclassifies] = "misclassified"
        target, overlap = self.matched_objects()
        of_regions = RegionOutcomes(
            image_id=regions.frame["image_id"],
            region_id=regions.region_id,
            outcome=region_outcome,
            object_id=np.append(objects.object_id, -1)[target],
            iou=overlap,
        )
        of_objects = ObjectOutcomes(
            image_id=objects.frame["image_id"],
            object_id=objects.object_id,
            category=objects.frame["category"],
            outcome=_OBJECT_NAMES[self.of_object],
            region_id=np.append(regions.region_id, -1)[self.deciding_region()],
        )
        return of_regions, of_objects

    def deciding_region(self) -> np.ndarray:
        """The region that decided each object's outcome, ndarray of shape (M,).

        That is the flagged region that was matched, or the most confident kept one that
        misclassifies the object; −1 where there is none.
        """
        pair = self.split.candidates
        is_deciding = self.misclassifies[pair.region]
        is_deciding &= self.of_object[pair.target] == MISCLASSIFIED
        misclassifying = pair[is_deciding]
        # Of several values for one object the last remains.
        least_confident_first = np.argsort(-self.split.detections.rank[misclassifying.region])
        misclassifying = misclassifying[least_confident_first]

        region = np.full(len(self.of_object), -1)
        region[misclassifying.target] = misclassifying.region
        matching = np.flatnonzero(self.matched >= 0)
        region[self.matched[matching]] = matching
        return region

    def matched_objects(self) -> tuple[np.ndarray, np.ndarray]:
        """The unknown object of each region, and the overlap with it, ndarrays of shape (N,).

        That is the matched object of a true unknown region, the object that a misclassifying region
        overlaps most, and row −1 with overlap 0 for all others.
        """
        pair = self.split.candidates
        misclassifies = self.misclassifies[pair.region] & self.split.is_counted[pair.target]
        largest_overlap = pair[misclassifies].first_of_each_region()
        target = self.matched.copy()
        target[largest_overlap.region] = largest_overlap.target

        is_chosen = pair.target == target[pair.region]
        overlap = np.zeros(len(self.matched))
        overlap[pair.region[is_chosen]] = pair.overlap[is_chosen]
        return target, overlap


def _voc_boxes(boxes: np.ndarray) -> np.ndarray:
    """Regions' boxes as the published code stores them, with widths that are one pixel more."""
    shifted = boxes.astype(np.float64) + np.array([1, 1, 0, 0])
    moved = _plus_one_pixel(np.round(shifted, 1))
    # The shift turns a box narrower than a pixel inside out only by rounding: its width is then 0.
    moved[:, 2:] = np.maximum(moved[:, 2:], moved[:, :2])
    return moved


def _plus_one_pixel(boxes: np.ndarray) -> np.ndarray:
    """Boxes whose width and height are one pixel more."""
    return boxes.astype(np.float64) + np.array([0, 0, 1, 1])


def _softmax_confidence(regions: Regions) -> np.ndarray:
    """The largest softmax probability among the known classes, rounded to 0.001, shape (N,)."""
    if not regions.has("logits"):
        raise DataError(
            "protocol 'published-code' needs logits, which these regions do not have",
            field="logits",
        )
    logits = regions.logits.astype(np.float64)
    if not logits.size:
        return np.zeros(len(regions))
    exponential = np.exp(logits - logits.max(axis=1, keepdims=True))
    probability = exponential / exponential.sum(axis=1, keepdims=True)
    is_known_class = [name in regions.header.known_classes for name in regions.classes]
    return np.round(probability[:, is_known_class].max(axis=1), 3)
