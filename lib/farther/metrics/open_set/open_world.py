"""Metrics of open-world detection, on ID images mixed with images that show unknown objects.

Publications on open-set and open-world detection add images with unknown objects to a test set of
known classes, keep at most 100 detections per image, and apply no operating threshold:

- OpenDet (Han et al., 2022, arXiv:2203.14911) has two tasks. In VOC-COCO-T1 the added images may
  show known objects beside unknown ones; in VOC-COCO-T2 they show no known class, and their number
  per ID image is the wilderness ratio.
- Hosoya et al. (2022, arXiv:2207.09775) name OSOD-I the task in which known classes shall not
  suffer from unknown objects (WI, A-OSE, AP of known classes), OSOD-II that in which unknown
  objects shall be found too (U-Recall, AP_U), and OSOD-III the same for unknown classes that are
  relatives of the known ones, as in near splits.

The code of OW-DETR, PROB and OpenDet counts a detection of a known class on an unknown object (IoU
above 0.5) as an open-set error even if it lies on an object of its own class too, and its WI has
these errors in the denominator as well. Here such a detection is correct, and WI is that of Dhamija
et al. (2020).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from farther.metrics.closed_set import ClosedSet
from farther.metrics.matching import falling_in_groups, ranks_within
from farther.metrics.matching.boxes import image_numbers, sorted_together
from farther.metrics.open_set import known_classes
from farther.metrics.open_set.outcomes import (
    FOUND,
    NOT_COUNTED,
    MatchingRules,
    OpenSetSplit,
    Outcome,
    RankedRegions,
)
from farther.metrics.weighting import ImageWeights, plain, ratio, row_weights
from farther.tables import Objects, Regions
from farther.tables.arguments import class_names, instance

#: Most confident detections of an image that count.
MAX_DETECTIONS = 100

#: Recall of the operating points of the wilderness impact (Joseph et al., 2021, arXiv:2103.02603).
WI_RECALL = 0.8


@dataclass(frozen=True)
class MixedImages:
    """ID images and images with unknown objects, with their overlaps.

    `MixedImages.of` builds it, once for all methods.

    Args:
        rows: Regions of the table that count, ndarray of shape (N,), bool.
        split: Their objects, without the table of them, and those regions.
        known: The regions of known classes.
        classes: The known classes.
    """

    rows: np.ndarray
    split: OpenSetSplit
    known: ClosedSet
    classes: tuple[str, ...]

    @classmethod
    def of(
        cls, objects: Objects, regions: Regions, classes: Sequence[str], iou: float = 0.5
    ) -> MixedImages:
        """The mixed images of two tables.

        Args:
            objects: Ground truth; categories that are not among `classes` are unknown.
            regions: N detections, best stored at a low threshold; the 100 most confident ones of
                each image count.
            classes: The known classes; regions of other classes are those that the detector labels
                as unknown.
            iou: Smallest overlap of a detection and its object.
        """
        instance(regions, Regions, "regions")
        classes = class_names(classes)
        _, (image,) = image_numbers(regions.image_id)
        is_counted = ranks_within(regions.score, image, regions.region_id) < MAX_DETECTIONS
        del image  # of some 10⁷ rows everything counts
        counted = regions
        if not is_counted.all():
            counted = regions[is_counted]
        rules = MatchingRules(iou=iou, known_classes=tuple(classes))
        split = OpenSetSplit.of(objects, counted, rules)
        known = known_classes.closed_set(split, counted)
        return cls(is_counted, replace(split, objects=Objects.empty()), known, tuple(classes))

    def joined(self, other: MixedImages, name: str) -> MixedImages:
        """These images and others as one set; overlaps are not computed again.

        Args:
            other: Images of the same classes and rules.
            name: Put in front of the names of the other images, with a slash, as two sets may share
                names.
        """
        other_images = np.array([f"{name}/{image}" for image in other.split.images], dtype=object)
        images, places = sorted_together(self.split.images, other_images)
        known = self.known.joined(
            other.known,
            images,
            places,
            len(self.split.detections.rank),
            len(self.split.is_ignored),
        )
        return MixedImages(
            np.concatenate([self.rows, other.rows]),
            _joined(self.split, other.split, images, places),
            known,
            self.classes,
        )

    @cached_property
    def is_on_unknown(self) -> np.ndarray:
        """Whether each region of `split` is on an unknown object, bool."""
        return self.split.on_unknown

    @cached_property
    def on_unknown(self) -> OpenSetSplit:
        """The split with these regions alone, which decide about unknown objects."""
        return self.split.keeping(self.is_on_unknown)

    @property
    def task(self) -> Literal["T1", "T2"]:
        """OpenDet's task: T1 where known and unknown objects share an image, else T2."""
        images_with_unknown = self.split.object_image[self.split.is_counted]
        images_with_known = self.split.object_image[self.split.is_known]
        if np.isin(images_with_unknown, images_with_known).any():
            return "T1"
        return "T2"

    @cached_property
    def ap_before(self) -> float | None:
        """Mean average precision of the known classes, before a method flags detections.

        `ap_k_before` of `metrics`.
        """
        detections = self.split.detections
        is_unknown_class = ~np.isin(detections.classes, self.classes)
        outcome = self.split.match(is_unknown_class[detections.label])
        ap: float | None = known_classes.of_kept(outcome, self.known)["ap_k"]
        return ap

    def match(self, is_unknown: np.ndarray) -> Outcome:
        """The outcomes when some regions are flagged as unknown.

        Args:
            is_unknown: Of all regions, ndarray of shape (N,), bool.
        """
        return self.split.match(is_unknown[self.rows])

    def metrics(self, outcome: Outcome, weights: ImageWeights | None = None) -> dict[str, Any]:
        """All metrics of a method.

        Args:
            outcome: From `match`; with weights also of the regions of `on_unknown`, and of copies
                of the images.
            weights: How often each of the outcome's images counts in each of B replicates, ndarray
                of shape (B, I); once when None.

        Returns:
            With weights u_recall and a_ose only, ndarrays of shape (B,), NaN for None.

            unknown_objects, task: The number of labelled unknown objects, and OpenDet's task.
            u_recall: Share of the unknown objects that a detection flagged as unknown matches
                (Gupta et al., 2022, OW-DETR, arXiv:2112.01513).
            a_ose: Detections kept as a known class that lie on an unknown object (Miller et al.,
                2018, arXiv:1710.06677; counted as in the code of Joseph et al., 2021), and
                a_ose_by_class, by that class.
            wi: Wilderness impact at a recall of 0.8; see
                `farther.metrics.open_set.known_classes.metrics`.
            ap_k_before, ap_k: Mean average precision (all points) of the known classes, of all
                detections and of those that the method does not flag; detections that the detector
                labels as unknown count in neither.

        >>> from farther.tables import Objects, Regions
        >>> cat, fox = [0, 0, 10, 10], [0, 0, 10, 10]
        >>> objects = Objects(
        ...     image_id=["id", "ood"], object_id=[0, 1], box=[cat, fox], category=["cat", "fox"]
        ... )
        >>> regions = Regions(
        ...     image_id=["id", "ood"],
        ...     region_id=[0, 0],
        ...     box=[cat, fox],
        ...     score=[0.8, 0.9],
        ...     label=[0, 0],
        ...     logits=[[1.0], [1.0]],
        ...     classes=("cat",),
        ... )
        >>> mixed = MixedImages.of(objects, regions, ["cat"])
        >>> fox_as_cat = mixed.metrics(mixed.match(np.array([False, False])))
        >>> fox_as_cat["a_ose"], fox_as_cat["wi"], fox_as_cat["ap_k"], fox_as_cat["task"]
        (1, 1.0, 0.5, 'T2')
        >>> flagged = mixed.metrics(mixed.match(np.array([False, True])))
        >>> flagged["u_recall"], flagged["a_ose"], flagged["ap_k_before"], flagged["ap_k"]
        (1.0, 0, 0.5, 1.0)
        """
        weighted = _weighted_metrics(outcome, weights)
        if weights is not None:
            return weighted
        kept = known_classes.of_kept(outcome, self.known, WI_RECALL)
        return {
            "task": self.task,
            "unknown_objects": int(np.sum(outcome.of_object != NOT_COUNTED)),
            **plain(weighted),
            "wi": kept["wi"],
            "ap_k_before": self.ap_before,
            "ap_k": kept["ap_k"],
            "a_ose_by_class": _errors_by_class(outcome),
        }


def _weighted_metrics(outcome: Outcome, weights: ImageWeights | None) -> dict[str, np.ndarray]:
    """The metrics that take weights, ndarrays of shape (B,)."""
    split = outcome.split
    objects = row_weights(weights, split.object_image, len(split.images))
    regions = row_weights(weights, split.detections.image, len(split.images))
    unknown_objects = objects[outcome.of_object != NOT_COUNTED].total()
    found_objects = objects[outcome.of_object == FOUND].total()
    return {
        "u_recall": ratio(found_objects, unknown_objects),
        "a_ose": regions[outcome.misclassifies].total(),
    }


def _errors_by_class(outcome: Outcome) -> dict[str, int]:
    """Number of detections of each known class that lie on an unknown object, sorted by class."""
    detections = outcome.split.detections
    label = detections.label[outcome.misclassifies]
    counts = np.bincount(label, minlength=len(detections.classes)).tolist()
    count_by_class = sorted(zip(detections.classes, counts, strict=True))
    return {name: count for name, count in count_by_class if count}


def _joined(
    first: OpenSetSplit, second: OpenSetSplit, images: np.ndarray, places: np.ndarray
) -> OpenSetSplit:
    """Two splits of the same rules in different images as one, without the table of objects.

    Args:
        first, second: The two.
        images: Names of the images of both, sorted.
        places: Index in `images` of each of the first one's images and, after them, of the
            second's.
    """
    first_places = places[: len(first.images)]
    second_places = places[len(first.images) :]

    def both(name: str) -> np.ndarray:
        return np.concatenate([getattr(first, name), getattr(second, name)])

    object_image = [first_places[first.object_image], second_places[second.object_image]]
    return OpenSetSplit(
        settings=first.settings,
        objects=Objects.empty(),
        images=images,
        object_image=np.concatenate(object_image),
        object_class=both("object_class"),
        is_ignored=both("is_ignored"),
        is_known=both("is_known"),
        detections=_joined_regions(
            first.detections, second.detections, first_places, second_places
        ),
        candidates=first.candidates.joined(
            second.candidates, len(first.detections.rank), len(first.is_ignored)
        ),
    )


def _joined_regions(
    first: RankedRegions,
    second: RankedRegions,
    first_places: np.ndarray,
    second_places: np.ndarray,
) -> RankedRegions:
    """The regions of two splits, ranked together.

    Args:
        first, second: The regions of each.
        first_places, second_places: New index of each of their images.
    """
    confidence = np.concatenate([first.confidence, second.confidence])
    image = np.concatenate([first_places[first.image], second_places[second.image]])
    old_rank = np.concatenate([first.rank, second.rank])
    one_group = np.zeros(len(image), dtype=np.int8)
    # Of equal confidences in one image the old ranks decide.
    order = falling_in_groups(confidence, one_group, image, old_rank)
    rank = np.empty(len(image), dtype=np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    return RankedRegions(
        confidence=confidence,
        rank=rank,
        image=image,
        counted=np.concatenate([first.counted, second.counted]),
        label=np.concatenate([first.label, second.label]),
        classes=first.classes,
    )
