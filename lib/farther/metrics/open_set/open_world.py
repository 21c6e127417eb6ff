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

#: Most confident detections of an image that count.
MAX_DETECTIONS = 100

#: Recall of the operating points of the wilderness impact (Joseph et al., 2021, arXiv:2103.02603).
WI_RECALL = 0.8


@dataclass(frozen=True)
class MixedImages:
    """ID images and images with unknown objects, with their overlaps, computed once for all methods; see `of`.

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
        _, (image,) = image_numbers(regions.image_id)
        rows = ranks_within(regions.score, image, regions.region_id) < MAX_DETECTIONS
        del image
        counted = regions if rows.all() else regions[rows]
        split = OpenSetSplit.of(
            objects, counted, MatchingRules(iou=iou, known_classes=tuple(classes))
        )
        known = known_classes.closed_set(split, counted)
        return cls(rows, replace(split, objects=Objects.empty()), known, tuple(classes))

    def joined(self, other: MixedImages, name: str) -> MixedImages:
        """These images and others as one set; overlaps are not computed again.

        Args:
            other: Images of the same classes and rules.
            name: What is put in front of the names of the others, and a slash, as two sets may
                share names.
        """
        of_other = np.array([f"{name}/{one}" for one in other.split.images], dtype=object)
        images, places = sorted_together(self.split.images, of_other)
        rows = len(self.split.detections.rank), len(self.split.is_ignored)
        return MixedImages(
            np.concatenate([self.rows, other.rows]),
            _joined(self.split, other.split, images, places),
            self.known.joined(other.known, images, places, *rows),
            self.classes,
        )

    @property
    def task(self) -> Literal["T1", "T2"]:
        """OpenDet's task: T1 where known and unknown objects share an image, else T2."""
        unknown = self.split.object_image[self.split.is_counted]
        return (
            "T1" if np.isin(unknown, self.split.object_image[self.split.is_known]).any() else "T2"
        )

    @cached_property
    def ap_before(self) -> float | None:
        """See `metrics`."""
        detections = self.split.detections
        label_is_unknown = ~np.isin(detections.classes, self.classes)[detections.label]
        found: float | None = known_classes.of_kept(self.split.match(label_is_unknown), self.known)[
            "ap_k"
        ]
        return found

    def match(self, is_unknown: np.ndarray) -> Outcome:
        """The outcomes when these regions are flagged as unknown: ndarray of shape (N,), bool, of all regions."""
        return self.split.match(is_unknown[self.rows])

    def metrics(self, outcome: Outcome, weights: ImageWeights | None = None) -> dict[str, Any]:
        """All metrics of a method.

        Args:
            outcome: From `match`.
            weights: How often each of `split.images` counts in each of B replicates, ndarray of
                shape (B, I); once when None.

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
        >>> found = mixed.metrics(
        ...     mixed.match(np.array([False, False]))
        ... )  # the fox is detected as a cat
        >>> found["a_ose"], found["wi"], found["ap_k"], found["task"]
        (1, 1.0, 0.5, 'T2')
        >>> found = mixed.metrics(mixed.match(np.array([False, True])))
        >>> found["u_recall"], found["a_ose"], found["ap_k_before"], found["ap_k"]
        (1.0, 0, 0.5, 1.0)
        """
        counted = self._counted(outcome, weights)
        if weights is not None:
            return counted
        kept = known_classes.of_kept(outcome, self.known, WI_RECALL)
        detections = outcome.split.detections
        counts = np.bincount(
            detections.label[outcome.misclassifies], minlength=len(detections.classes)
        ).tolist()
        return {
            "task": self.task,
            "unknown_objects": int(np.sum(outcome.of_object != NOT_COUNTED)),
            **plain(counted),
            "wi": kept["wi"],
            "ap_k_before": self.ap_before,
            "ap_k": kept["ap_k"],
            "a_ose_by_class": {
                name: n for name, n in sorted(zip(detections.classes, counts, strict=True)) if n
            },
        }

    def _counted(self, outcome: Outcome, weights: ImageWeights | None) -> dict[str, np.ndarray]:
        split = self.split
        objects = row_weights(weights, split.object_image, len(split.images))
        regions = row_weights(weights, split.detections.image, len(split.images))
        unknown = objects[outcome.of_object != NOT_COUNTED].total()
        found = objects[outcome.of_object == FOUND].total()
        return {"u_recall": ratio(found, unknown), "a_ose": regions[outcome.misclassifies].total()}


def _joined(
    split: OpenSetSplit, other: OpenSetSplit, images: np.ndarray, places: np.ndarray
) -> OpenSetSplit:
    """A split and one of the same rules in other images as one, without the table of objects.

    Args:
        split, other: The two.
        images: Names of the images of both, sorted.
        places: Place among these of each of the first one's images and, after them, of the other's.
    """
    of_other, parts = places[len(split.images) :], (split.detections, other.detections)
    confidence, counted, label, number = (
        np.concatenate([getattr(part, name) for part in parts])
        for name in ("confidence", "counted", "label", "rank")
    )
    image = np.concatenate([places[parts[0].image], of_other[parts[1].image]])
    rank = np.empty(len(image), dtype=np.int32)
    # Of equal confidences in one image the old ranks decide.
    order = falling_in_groups(confidence, np.zeros(len(image), dtype=np.int8), image, number)
    rank[order] = np.arange(len(order), dtype=np.int32)
    names = "object_class", "is_ignored", "is_known"
    return OpenSetSplit(
        settings=split.settings,
        objects=Objects.empty(),
        images=images,
        object_image=np.concatenate([places[split.object_image], of_other[other.object_image]]),
        **{name: np.concatenate([getattr(split, name), getattr(other, name)]) for name in names},
        detections=RankedRegions(confidence, rank, image, counted, label, split.detections.classes),
        candidates=split.candidates.joined(
            other.candidates, len(parts[0].rank), len(split.is_ignored)
        ),
    )
