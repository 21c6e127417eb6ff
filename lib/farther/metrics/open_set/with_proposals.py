"""Open-set metrics of detections and proposals together, by the formulas of detections.

Proposals that are called unknown are regions that are flagged as unknown. They rank after all
detections: what a detection gets, no proposal takes away. So R_U never falls and nOSE never rises,
and neither does AP_U fall, in whose ranking the proposals follow the flagged detections by falling
objectness. P_U counts each one on nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from farther.metrics.matching import ranks_within
from farther.metrics.matching.boxes import image_numbers
from farther.metrics.open_set.outcomes import (
    FOUND,
    NOT_COUNTED,
    MatchingRules,
    OpenSetSplit,
    Outcome,
)
from farther.metrics.weighting import ImageWeights, ratio, row_weights
from farther.tables import Header, Objects, Regions
from farther.tables.arguments import booleans, floats, instance, instances


@dataclass(frozen=True)
class WithProposals:
    """A split's detections and the proposals that are called unknown, with their overlaps.

    `WithProposals.of` builds it.

    Args:
        rows: Detections that count, ndarray of shape (N,), bool.
        split: Those, then the P proposals.
        objectness: Of the proposals, ndarray of shape (P,).
    """

    rows: np.ndarray
    split: OpenSetSplit
    objectness: np.ndarray

    @classmethod
    def of(
        cls,
        objects: Objects,
        detections: Regions,
        proposals: Regions,
        rules: MatchingRules | None = None,
        max_detections: int | None = None,
    ) -> WithProposals:
        """Detections and proposals of the same images.

        Args:
            objects: Ground truth.
            detections: N detections.
            proposals: P proposals that are called unknown.
            rules: IoU and known classes; the protocol is "paper" whatever they say.
            max_detections: Number of each image's most confident detections that count; None for
                all.
        """
        instance(detections, Regions, "detections")
        instance(proposals, Regions, "proposals")
        rules = MatchingRules() if rules is None else instance(rules, MatchingRules, "rules")
        rules = replace(rules, protocol="paper")
        is_counted = np.ones(len(detections), dtype=bool)
        if max_detections is not None:
            _, (image,) = image_numbers(detections.image_id)
            rank_in_image = ranks_within(detections.score, image, detections.region_id)
            is_counted = rank_in_image < max_detections
        regions = _stacked(detections[is_counted], proposals)
        split = OpenSetSplit.of(objects, regions, rules)
        ranked = _with_proposals_last(split, int(is_counted.sum()))
        return cls(is_counted, ranked, proposals.score)

    def match(self, is_unknown: np.ndarray) -> Outcome:
        """The outcome when some detections and all proposals are flagged as unknown.

        Args:
            is_unknown: The flagged detections, ndarray of shape (N,), bool.
        """
        is_unknown = booleans(is_unknown, "is_unknown", shape=self.rows.shape)
        all_proposals = np.ones(len(self.objectness), dtype=bool)
        return self.split.match(np.append(is_unknown[self.rows], all_proposals))

    @cached_property
    def is_on_unknown(self) -> np.ndarray:
        """Whether each region of `split` is on an unknown object, bool."""
        return self.split.on_unknown

    @cached_property
    def on_unknown(self) -> OpenSetSplit:
        """The split with these regions alone, which decide which objects are found."""
        return self.split.keeping(self.is_on_unknown)

    def scores(self, of_detections: np.ndarray) -> np.ndarray:
        """Scores of the regions of `split`; −∞ of proposals, which are flagged at any τ.

        Args:
            of_detections: A method's scores of the detections, ndarray of shape (N,).
        """
        of_detections = floats(of_detections, "of_detections", shape=self.rows.shape)
        of_proposals = np.full(len(self.objectness), -np.inf)
        return np.append(of_detections[self.rows], of_proposals)

    def unknown_score(self, of_detections: np.ndarray) -> np.ndarray:
        """Scores that rank the regions of `split` for AP_U: all proposals behind all detections.

        Args:
            of_detections: Higher means more likely unknown, ndarray of shape (N,).
        """
        of_detections = floats(of_detections, "of_detections", shape=self.rows.shape)
        _, level_of_proposal = np.unique(self.objectness, return_inverse=True)
        _, level_of_detection = np.unique(of_detections[self.rows], return_inverse=True)
        above_proposals = level_of_detection + len(level_of_proposal)
        return np.append(above_proposals, level_of_proposal).astype(np.float64)


def u_recall(outcomes: Sequence[Outcome], weights: Sequence[ImageWeights | None]) -> np.ndarray:
    """Share of the unknown objects of several splits that are found.

    Args:
        outcomes: Of ID images and of an OOD split, of the detections that
            `farther.metrics.open_set.open_world` counts.
        weights: Those of the images of each.

    Returns:
        ndarray of shape (B,), NaN without unknown objects.
    """
    instances(outcomes, Outcome, "outcomes")
    found_by_split = []
    unknown_by_split = []
    for outcome, image_weights in zip(outcomes, weights, strict=True):
        split = outcome.split
        objects = row_weights(image_weights, split.object_image, len(split.images))
        found_by_split.append(objects[outcome.of_object == FOUND].total())
        unknown_by_split.append(objects[outcome.of_object != NOT_COUNTED].total())
    return ratio(np.sum(found_by_split, axis=0), np.sum(unknown_by_split, axis=0))


def any_class(header: Header) -> int:
    """The index of the first class that is not the background, for regions without a class.

    Args:
        header: Of the regions.
    """
    for index in range(len(header.classes)):
        if index != header.background_index:
            return index
    return 0


def _with_proposals_last(split: OpenSetSplit, detections: int) -> OpenSetSplit:
    """The split with its detections ranked before its proposals.

    Args:
        split: Detections, then proposals.
        detections: Number of the detections.
    """
    old_rank = split.detections.rank
    is_proposal = np.arange(len(old_rank)) >= detections
    order = np.lexsort((old_rank, is_proposal))
    rank = np.empty(len(order), dtype=np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    return replace(split, detections=replace(split.detections, rank=rank))


def _stacked(detections: Regions, proposals: Regions) -> Regions:
    """Detections and proposals as one table of the detections' classes.

    A proposal has no class, so its label means nothing.
    """
    proposal_label = np.full(
        len(proposals), any_class(detections.header), dtype=detections.label.dtype
    )
    return Regions(
        header=detections.header,
        image_id=np.concatenate([detections.image_id, proposals.image_id]),
        region_id=np.concatenate([detections.region_id, proposals.region_id]),
        box=np.concatenate([detections.box, proposals.box]),
        score=np.concatenate([detections.score, proposals.score]),
        label=np.concatenate([detections.label, proposal_label]),
    )
