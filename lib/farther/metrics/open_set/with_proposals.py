"""Open-set metrics of detections and proposals together, by the matching and formulas of detections alone.

Proposals that are called unknown are regions that are flagged as unknown. They rank after all
detections: what a detection gets, no proposal takes away. So R_U never falls and nOSE never rises,
and neither does AP_U fall, in whose ranking the proposals follow the flagged detections by falling
objectness. P_U counts each one on nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

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


@dataclass(frozen=True)
class WithProposals:
    """A split's detections and the proposals that are called unknown, with their overlaps; see `of`.

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
        most: int | None = None,
    ) -> WithProposals:
        """Detections and proposals of the same images.

        Args:
            objects: Ground truth.
            detections: N detections.
            proposals: P proposals that are called unknown.
            rules: IoU and known classes; the protocol is "paper" whatever they say.
            most: Number of each image's most confident detections that count; None for all.
        """
        rules = replace(rules or MatchingRules(), protocol="paper")
        rows = np.ones(len(detections), dtype=bool)
        if most is not None:
            _, (image,) = image_numbers(detections.image_id)
            rows = ranks_within(detections.score, image, detections.region_id) < most
        split = OpenSetSplit.of(objects, _stacked(detections[rows], proposals), rules)
        order = np.lexsort(
            (split.detections.rank, np.arange(len(split.detections.rank)) >= rows.sum())
        )
        rank = np.empty(len(order), dtype=np.int32)
        rank[order] = np.arange(len(order), dtype=np.int32)
        return cls(
            rows, replace(split, detections=replace(split.detections, rank=rank)), proposals.score
        )

    def match(self, is_unknown: np.ndarray) -> Outcome:
        """The outcome when these detections, ndarray of shape (N,), bool, and all proposals are flagged."""
        return self.split.match(
            np.append(is_unknown[self.rows], np.ones(len(self.objectness), dtype=bool))
        )

    def unknown_score(self, of_detections: np.ndarray) -> np.ndarray:
        """Ranks the regions of `split` for AP_U.

        Args:
            of_detections: Higher means more likely unknown, ndarray of shape (N,).
        """
        values = self.objectness, of_detections[self.rows]
        below, first = (np.unique(one, return_inverse=True)[1] for one in values)
        return np.append(first + len(below), below).astype(np.float64)


def u_recall(outcomes: Sequence[Outcome], weights: Sequence[ImageWeights | None]) -> np.ndarray:
    """Share of the unknown objects of several splits that are found, ndarray of shape (B,), NaN without objects.

    Args:
        outcomes: Of ID images and of an OOD split, of the detections that
            `farther.metrics.open_set.open_world` counts.
        weights: Those of the images of each.
    """
    found, unknown = [], []
    for outcome, of in zip(outcomes, weights, strict=True):
        rows = row_weights(of, outcome.split.object_image, len(outcome.split.images))
        found.append(rows[outcome.of_object == FOUND].total())
        unknown.append(rows[outcome.of_object != NOT_COUNTED].total())
    return ratio(np.sum(found, axis=0), np.sum(unknown, axis=0))


def any_class(header: Header) -> int:
    """The index of a class, for regions whose class is not asked for.

    Args:
        header: Of the regions.
    """
    return next((k for k in range(len(header.classes)) if k != header.background_index), 0)


def _stacked(detections: Regions, proposals: Regions) -> Regions:
    """Both as one table of the detections' classes; a proposal has none, so its label says nothing."""
    header, label = detections.header, any_class(detections.header)
    columns = {
        name: np.concatenate([getattr(t, name) for t in (detections, proposals)])
        for name in ("box", "score")
    }
    count = len(detections), len(proposals)
    return Regions(
        header=header,
        image_id=np.concatenate([detections.image_id, proposals.image_id]),
        region_id=np.concatenate([detections.region_id, proposals.region_id]),
        label=np.concatenate(
            [detections.label, np.full(count[1], label, dtype=detections.label.dtype)]
        ),
        **columns,
    )
