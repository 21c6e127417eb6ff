"""Proposals: how many unknown objects a detector misses, its class-agnostic proposals find, and at what price.

A proposal that lies on a detection says nothing new and is dropped: one that overlaps it by the IoU
of a match, or lies in it by more than half. Of the others those above a threshold τ_o are called
unknown. In ID images all of them are false alarms, whatever they lie on: background, part of a
known object, or a known object that the detector misses.

FROC (free-response receiver operating characteristic) is the share of unknown objects that is found
over the false alarms per ID image (Bunch et al., 1978, doi:10.1117/12.955926; the rates are close
to those of LUNA16, Setio et al., 2017, doi:10.1016/j.media.2017.06.015). Matching is that of
`farther.metrics.open_set.outcomes` with protocol "paper": proposals choose by falling objectness
the free unknown object that they overlap most.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from farther.errors import DataError
from farther.metrics.closed_set import COCO_IOUS
from farther.metrics.matching.boxes import AREA_RANGES, areas, image_numbers, pairs
from farther.metrics.open_set.outcomes import MatchingRules, OpenSetSplit
from farther.metrics.weighting import ImageWeights, accumulated, blocks, ratio, row_weights
from farther.tables import Objects, Regions

#: False alarms per ID image at which a FROC curve is read.
RATES = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)

#: Share of a proposal inside of a detection above which it is dropped.
INSIDE = 0.5


def beside(proposals: Regions, detections: Regions, iou: float = 0.5) -> np.ndarray:
    """Proposals that lie on no detection of their image, ndarray of shape (P,), bool.

    Args:
        proposals: P proposals.
        detections: Detections at or above the operating threshold in the same images.
        iou: IoU with a detection from which on a proposal is dropped; one that lies in it by more
            than half is, too.
    """
    _, (image, of_detection) = image_numbers(proposals.image_id, detections.image_id)
    left = np.ones(len(proposals), dtype=bool)
    above = float(np.nextafter(INSIDE, 1))
    for is_share, at_least in ((False, iou), (True, above)):
        shares = np.full(len(detections), is_share)
        found = pairs(proposals.box, image, detections.box, of_detection, shares, at_least)
        left[found.region] = False
    return left


def finders(
    objects: Objects, detections: Regions, proposals: Regions, rules: MatchingRules | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The objects that no detection overlaps enough, and the proposal that finds each unknown one of them.

    Args:
        objects, detections, proposals, rules: see `Recovery.of`.

    Returns:
        ndarray of shape (M,), bool; and ndarray of shape (M,): the row of the proposal, −1 where
        none finds the object.
    """
    rules = replace(rules or MatchingRules(), protocol="paper")
    missed = np.ones(len(objects), dtype=bool)
    missed[OpenSetSplit.of(objects, detections, rules).candidates.target] = False
    left = np.flatnonzero(beside(proposals, detections, rules.iou))
    matched = (
        OpenSetSplit.of(objects, proposals[left], rules)
        .match(np.ones(len(left), dtype=bool))
        .matched
    )
    finder = np.full(len(objects), -1)
    finder[matched[matched >= 0]] = left[matched >= 0]
    finder[~missed] = -1
    return missed, finder


@dataclass(frozen=True)
class Recovery:
    """Unknown objects, which of them the detector misses, and the proposals that find them.

    Args:
        image_id: Image of each of M counted unknown objects, object array of shape (M,).
        missed: Objects that no detection overlaps enough, ndarray of shape (M,), bool.
        objectness: Of the proposal that finds a missed object, −∞ where none does, ndarray of shape
            (M,).
        size: "small", "medium" or "large" (COCO's area ranges), object array of shape (M,).
        category: Object array of shape (M,).
    """

    image_id: np.ndarray
    missed: np.ndarray
    objectness: np.ndarray
    size: np.ndarray
    category: np.ndarray

    @classmethod
    def of(
        cls,
        objects: Objects,
        detections: Regions,
        proposals: Regions,
        rules: MatchingRules | None = None,
    ) -> Recovery:
        """What proposals recover in some images.

        Args:
            objects: Ground truth.
            detections: Detections at or above the operating threshold.
            proposals: Proposals; those on detections are dropped here, see `beside`.
            rules: IoU and known classes; the protocol is "paper" whatever they say.
        """
        rules = rules or MatchingRules()
        found = OpenSetSplit.of(objects, detections, replace(rules, protocol="paper"))
        rows = np.flatnonzero(found.is_counted)
        missed, finder = finders(objects, detections, proposals, rules)
        objectness = np.append(proposals.score.astype(np.float64), -np.inf)[finder]
        return cls(
            objects.image_id[rows],
            missed[rows],
            objectness[rows],
            found.sizes()[rows],
            objects.category[rows],
        )

    def __getitem__(self, rows: np.ndarray) -> Recovery:
        """Some of the objects."""
        return Recovery(*(values[rows] for values in vars(self).values()))

    @classmethod
    def joined(cls, parts: Sequence[tuple[str, Recovery]]) -> Recovery:
        """The objects of several splits; names of images get that of their split, as two may share names."""
        columns = []
        for name in cls.__dataclass_fields__:
            each = [getattr(one, name) for _, one in parts]
            if name == "image_id":
                each = [
                    np.array([f"{split}/{image}" for image in one], dtype=object)
                    for (split, _), one in zip(parts, each, strict=True)
                ]
            columns.append(np.concatenate(each))
        return cls(*columns)

    def found(
        self,
        threshold: np.ndarray | float,
        weights: ImageWeights | None = None,
        images: np.ndarray | None = None,
    ) -> dict[str, np.ndarray]:
        """Shares of the unknown objects that are missed, with and without proposals.

        Args:
            threshold: τ_o, of shape (B,): proposals *above* it are called unknown.
            weights: Weights of the images, shape (B, I); None counts each once.
            images: Place of each object's image, ndarray of shape (M,); not needed without weights.

        Returns:
            `missed` (without proposals), `still_missed`, and `recovered`, their difference;
            ndarrays of shape (B,), NaN without objects.
        """
        count = len(self.missed)
        rows = row_weights(
            weights, np.zeros(count, dtype=np.int64) if images is None else images, 1
        )
        above = np.broadcast_to(np.asarray(threshold, dtype=np.float64), (len(rows.of_images),))
        total, missed, recovered = (np.zeros(len(rows.of_images)) for _ in range(3))
        for block in blocks(len(rows.of_images), max(count, 1)):
            weight = rows.in_block(block)
            total[block] = weight.sum(axis=1)
            missed[block] = weight[:, self.missed].sum(axis=1)
            recovered[block] = (weight * (self.objectness[None] > above[block, None])).sum(axis=1)
        return {
            "missed": ratio(missed, total),
            "still_missed": ratio(missed - recovered, total),
            "recovered": ratio(recovered, total),
        }


def thresholds(
    alarms: np.ndarray,
    rates: Sequence[float],
    images: int,
    weights: ImageWeights | None = None,
    place: np.ndarray | None = None,
) -> np.ndarray:
    """The lowest threshold τ_o of each rate: no more proposals of ID images are above it than the rate allows.

    Args:
        alarms: Objectness of the proposals in ID images that lie on no detection, ndarray of shape
            (F,).
        rates: False alarms per image.
        images: Number of the ID images.
        weights: Weights of the images, shape (B, I); None counts each once.
        place: Place of each alarm's image, ndarray of shape (F,); not needed without weights.

    Returns:
        ndarray of shape (rates, B); −∞ where all proposals together are fewer.

    Raises:
        DataError: `images` is 0.

    >>> thresholds(np.array([0.9, 0.8, 0.3, 0.1]), [0.5, 1, 2], images=2).ravel().tolist()
    [0.8, 0.3, -inf]
    """
    if images < 1:
        raise DataError("no ID image to count false alarms in")
    order = np.argsort(-alarms, kind="stable")
    ranked = np.append(alarms[order], -np.inf)
    if weights is None:
        rows, total = (
            row_weights(None, np.zeros(len(order), dtype=np.int64), 1),
            np.array([float(images)]),
        )
    else:
        rows = row_weights(
            weights,
            (np.zeros(len(alarms), dtype=np.int64) if place is None else place)[order],
            images,
        )
        total = weights @ np.ones(images)
    found = np.empty((len(rates), len(total)))
    for block in blocks(len(total), max(len(order), 1)):
        counted = accumulated(rows.in_block(block))[:, 1:]
        for k, rate in enumerate(rates):
            within = counted <= rate * total[block, None] * (1 + 1e-12)
            found[k, block] = ranked[within.sum(axis=1)]
    return found


def average_recall(
    objects: Objects,
    proposals: Regions,
    most: Sequence[int] = (10, 100),
    known_classes: Sequence[str] = (),
) -> dict[str, float | None]:
    """Average recall of unknown objects by the best proposals of each image, over COCO's IoU thresholds (AR@k).

    It is pycocotools' with `useCats = 0` and `maxDets = k`, on the unknown objects alone.

    Args:
        objects: Ground truth; crowds and objects of known classes are not counted.
        proposals: All proposals, those on detections, too.
        most: Numbers k of proposals per image.
        known_classes: Categories that the detector was trained on.

    Returns:
        `ar@k` of each k, and `ar@k_small`, `_medium` and `_large` of the largest; None without
        objects.
    """
    rules = MatchingRules(float(COCO_IOUS[0]), known_classes=known_classes)
    every = OpenSetSplit.of(objects, proposals, rules)
    counted = objects[every.is_counted]
    area = areas(counted.box)
    sizes = {
        name: counted[(low <= area) & (area <= high)] for name, (low, high) in AREA_RANGES.items()
    }
    asked = [("", counted, k) for k in most] + [
        (f"_{name}", one, max(most)) for name, one in sizes.items()
    ]
    found: dict[str, float | None] = {}
    for suffix, ground_truth, k in asked:
        rows = proposals[best_of_each_image(proposals, k)]
        split = OpenSetSplit.of(ground_truth, rows, rules)
        flagged = np.ones(len(rows), dtype=bool)
        shares = [np.sum(split.at(iou).match(flagged).matched >= 0) for iou in COCO_IOUS.tolist()]
        found[f"ar@{k}{suffix}"] = (
            float(np.mean(shares)) / len(ground_truth) if len(ground_truth) else None
        )
    return found


def best_of_each_image(proposals: Regions, most: int) -> np.ndarray:
    """The rows of each image's best proposals, in their order.

    Args:
        proposals: All proposals.
        most: How many of an image are kept, by falling score.
    """
    _, (image,) = image_numbers(proposals.image_id)
    order = np.lexsort((-proposals.score, image))
    rank = np.arange(len(order)) - np.searchsorted(image[order], image[order])
    return np.sort(order[rank < most])
