"""Recovery of missed unknown objects by class-agnostic proposals, and the false alarms it costs.

A proposal that lies on a detection adds nothing and is dropped: one that overlaps it by the IoU of
a match, or lies in it by more than half. Of the remaining ones those above a threshold τ_o are
called unknown. In ID images all of them are false alarms, whatever they lie on: background, part of
a known object, or a known object that the detector misses.

FROC (free-response receiver operating characteristic) is the share of unknown objects that is found
over the false alarms per ID image (Bunch et al., 1978, doi:10.1117/12.955926; the rates are close
to those of LUNA16, Setio et al., 2017, doi:10.1016/j.media.2017.06.015). Matching is that of
`farther.metrics.open_set.outcomes` with protocol "paper": proposals choose by falling objectness
the free unknown object that they overlap most.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from farther.errors import DataError
from farther.metrics.closed_set import COCO_IOUS
from farther.metrics.matching.boxes import AREA_RANGES, areas, image_numbers, pairs
from farther.metrics.open_set.outcomes import MatchingRules, OpenSetSplit
from farther.metrics.weighting import ImageWeights, accumulated, blocks, ratio, row_weights
from farther.tables import Objects, Regions
from farther.tables.arguments import floats, instance, integers, number, whole_number

#: False alarms per ID image at which a FROC curve is read.
RATES = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)

#: Share of a proposal inside of a detection above which it is dropped.
INSIDE = 0.5


def apart_from_detections(proposals: Regions, detections: Regions, iou: float = 0.5) -> np.ndarray:
    """Proposals that lie on no detection of their image, ndarray of shape (P,), bool.

    Args:
        proposals: P proposals.
        detections: Detections at or above the operating threshold in the same images.
        iou: IoU with a detection from which on a proposal is dropped; one that lies in it by more
            than half is, too.
    """
    instance(proposals, Regions, "proposals")
    instance(detections, Regions, "detections")
    iou = number(iou, "iou", above=0, at_most=1)
    _, (proposal_image, detection_image) = image_numbers(proposals.image_id, detections.image_id)
    is_beside = np.ones(len(proposals), dtype=bool)
    inside = float(np.nextafter(INSIDE, 1))
    for is_share_of_proposal, smallest_overlap in ((False, iou), (True, inside)):
        on_detection = pairs(
            proposals.box,
            proposal_image,
            detections.box,
            detection_image,
            np.full(len(detections), is_share_of_proposal),
            smallest_overlap,
        )
        is_beside[on_detection.region] = False
    return is_beside


def finders(
    objects: Objects, detections: Regions, proposals: Regions, rules: MatchingRules | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The objects that no detection overlaps enough, and the proposal that finds each of them.

    Args:
        objects, detections, proposals, rules: see `Recovery.of`.

    Returns:
        ndarray of shape (M,), bool; and ndarray of shape (M,): the row of the proposal, −1 where
        none finds the object, and for known objects.
    """
    rules = MatchingRules() if rules is None else instance(rules, MatchingRules, "rules")
    rules = replace(rules, protocol="paper")
    detected = OpenSetSplit.of(objects, detections, rules).candidates.target
    is_missed = np.ones(len(objects), dtype=bool)
    is_missed[detected] = False

    rows = np.flatnonzero(apart_from_detections(proposals, detections, rules.iou))
    all_flagged = np.ones(len(rows), dtype=bool)
    matched = OpenSetSplit.of(objects, proposals[rows], rules).match(all_flagged).matched
    finder = np.full(len(objects), -1)
    finder[matched[matched >= 0]] = rows[matched >= 0]
    finder[~is_missed] = -1
    return is_missed, finder


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
        """The recovery of the unknown objects of some images.

        Args:
            objects: Ground truth.
            detections: Detections at or above the operating threshold.
            proposals: Proposals; those on detections are dropped here, see `apart_from_detections`.
            rules: IoU and known classes; the protocol is "paper" whatever they say.
        """
        rules = MatchingRules() if rules is None else instance(rules, MatchingRules, "rules")
        instance(proposals, Regions, "proposals")
        split = OpenSetSplit.of(objects, detections, replace(rules, protocol="paper"))
        missed, finder = finders(objects, detections, proposals, rules)
        objectness_by_row = np.append(proposals.score.astype(np.float64), -np.inf)
        rows = np.flatnonzero(split.is_counted)
        return cls(
            image_id=objects.image_id[rows],
            missed=missed[rows],
            objectness=objectness_by_row[finder][rows],
            size=split.sizes()[rows],
            category=objects.category[rows],
        )

    def __getitem__(self, rows: np.ndarray) -> Recovery:
        """Some of the objects."""
        return Recovery(
            image_id=self.image_id[rows],
            missed=self.missed[rows],
            objectness=self.objectness[rows],
            size=self.size[rows],
            category=self.category[rows],
        )

    @classmethod
    def joined(cls, parts: Sequence[tuple[str, Recovery]]) -> Recovery:
        """The objects of several splits.

        Args:
            parts: Name and objects of each split. Names of images get the split's name in front, as
                two splits may share names.
        """
        recoveries = []
        for split, recovery in parts:
            names = [f"{split}/{image}" for image in recovery.image_id]
            recoveries.append(replace(recovery, image_id=np.array(names, dtype=object)))
        columns = {}
        for column in fields(cls):
            parts_of_column = [getattr(recovery, column.name) for recovery in recoveries]
            columns[column.name] = np.concatenate(parts_of_column)
        return cls(**columns)

    def missed_shares(
        self,
        threshold: np.ndarray | float,
        weights: ImageWeights | None = None,
        images: np.ndarray | None = None,
    ) -> dict[str, np.ndarray]:
        """Shares of the unknown objects that are missed, with and without proposals.

        Args:
            threshold: τ_o, of shape (B,): proposals *above* it are called unknown.
            weights: Weights of the images, shape (B, I); None counts each once.
            images: Index of each object's image, ndarray of shape (M,); not needed without weights.

        Returns:
            `missed` (without proposals), `still_missed`, and `recovered`, their difference;
            ndarrays of shape (B,), NaN without objects.
        """
        objects = len(self.missed)
        count = 1 if weights is None else weights.shape[1]
        if images is None:
            images = np.zeros(objects, dtype=np.int64)
        rows = row_weights(weights, images, count)
        replicates = len(rows.of_images)
        thresholds = np.broadcast_to(np.asarray(threshold, dtype=np.float64), (replicates,))

        total = np.zeros(replicates)
        missed = np.zeros(replicates)
        recovered = np.zeros(replicates)
        for block in blocks(replicates, max(objects, 1)):
            weight = rows.in_block(block)
            is_recovered = self.objectness[None] > thresholds[block, None]
            total[block] = weight.sum(axis=1)
            missed[block] = weight[:, self.missed].sum(axis=1)
            recovered[block] = (weight * is_recovered).sum(axis=1)
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
    """The lowest threshold τ_o at each rate of false alarms.

    No more proposals of ID images are above it than the rate allows.

    Args:
        alarms: Objectness of the proposals in ID images that lie on no detection, ndarray of shape
            (F,).
        rates: False alarms per image.
        images: Number of the ID images.
        weights: Weights of the images, shape (B, I); None counts each once.
        place: Index of each alarm's image, ndarray of shape (F,); not needed without weights.

    Returns:
        ndarray of shape (rates, B); −∞ where all proposals together are fewer.

    Raises:
        DataError: `images` is 0.

    >>> thresholds(np.array([0.9, 0.8, 0.3, 0.1]), [0.5, 1, 2], images=2).ravel().tolist()
    [0.8, 0.3, -inf]
    """
    alarms = floats(alarms, "alarms")
    rates = floats(rates, "rates").tolist()
    images = whole_number(images, "images")
    if images < 1:
        raise DataError("no ID image to count false alarms in")
    if place is not None:
        place = integers(place, "place", shape=alarms.shape)
    order = np.argsort(-alarms, kind="stable")
    # The threshold that lets the first 0, 1, 2, … alarms pass.
    threshold_after = np.append(alarms[order], -np.inf)

    if place is None or weights is None:
        place = np.zeros(len(alarms), dtype=np.int64)
    if weights is None:
        rows = row_weights(None, place[order], 1)
        image_count = np.array([float(images)])
    else:
        rows = row_weights(weights, place[order], images)
        image_count = weights @ np.ones(images)

    threshold_at_rate = np.empty((len(rates), len(image_count)))
    for block in blocks(len(image_count), max(len(order), 1)):
        alarms_so_far = accumulated(rows.in_block(block))[:, 1:]
        for k, rate in enumerate(rates):
            allowed = rate * image_count[block, None] * (1 + 1e-12)
            passing = (alarms_so_far <= allowed).sum(axis=1)
            threshold_at_rate[k, block] = threshold_after[passing]
    return threshold_at_rate


def average_recall(
    objects: Objects,
    proposals: Regions,
    counts: Sequence[int] = (10, 100),
    known_classes: Sequence[str] = (),
) -> dict[str, float | None]:
    """Average recall of unknown objects by each image's best proposals (AR@k), over COCO's IoUs.

    It is pycocotools' with `useCats = 0` and `maxDets = k`, on the unknown objects alone.

    Args:
        objects: Ground truth; crowds and objects of known classes are not counted.
        proposals: All proposals, those on detections, too.
        counts: Numbers k of proposals per image.
        known_classes: Categories that the detector was trained on.

    Returns:
        `ar@k` of each k, and `ar@k_small`, `_medium` and `_large` of the largest; None without
        objects.
    """
    counts = [whole_number(k, "counts", at_least=1) for k in integers(counts, "counts").tolist()]
    if not counts:
        raise DataError("expected numbers of proposals, found none", field="counts")
    rules = MatchingRules(float(COCO_IOUS[0]), known_classes=known_classes)
    unknown = objects[OpenSetSplit.of(objects, proposals, rules).is_counted]
    recalls: dict[str, float | None] = {}
    for k in counts:
        recalls[f"ar@{k}"] = _average_recall(unknown, proposals, k, rules)

    largest_k = max(counts)
    area = areas(unknown.box)
    for size, (low, high) in AREA_RANGES.items():
        of_size = unknown[(low <= area) & (area <= high)]
        recalls[f"ar@{largest_k}_{size}"] = _average_recall(of_size, proposals, largest_k, rules)
    return recalls


def _average_recall(
    objects: Objects, proposals: Regions, k: int, rules: MatchingRules
) -> float | None:
    """Mean recall over `COCO_IOUS` of objects by each image's k best proposals; None without any.

    Args:
        objects: The objects that are counted.
        proposals: All proposals.
        k: Number of proposals per image.
        rules: Rules of matching at the smallest IoU.
    """
    if not len(objects):
        return None
    best = proposals[best_of_each_image(proposals, k)]
    split = OpenSetSplit.of(objects, best, rules)
    flagged = np.ones(len(best), dtype=bool)
    found_at_ious = []
    for iou in COCO_IOUS.tolist():
        matched = split.at(iou).match(flagged).matched
        found_at_ious.append(np.sum(matched >= 0))
    return float(np.mean(found_at_ious)) / len(objects)


def best_of_each_image(proposals: Regions, count: int) -> np.ndarray:
    """The rows of each image's best proposals, in their order.

    Args:
        proposals: All proposals.
        count: Number of proposals per image, by falling score.
    """
    instance(proposals, Regions, "proposals")
    count = whole_number(count, "count", at_least=0)
    _, (image,) = image_numbers(proposals.image_id)
    order = np.lexsort((-proposals.score, image))
    ranked_image = image[order]
    rank_in_image = np.arange(len(order)) - np.searchsorted(ranked_image, ranked_image)
    return np.sort(order[rank_in_image < count])
