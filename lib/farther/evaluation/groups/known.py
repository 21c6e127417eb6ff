"""What flagging costs the known classes in the images that also show unknown objects."""

from __future__ import annotations

from typing import Any

from farther.evaluation.groups.base import GroupTable, MetricGroup
from farther.evaluation.scored_split import ScoredSplit
from farther.evaluation.weights import Weights
from farther.metrics.open_set import known_classes


class Known(MetricGroup):
    """Known objects of the split; see `farther.metrics.open_set.known_classes`."""

    name = "known"
    table = GroupTable("known", "known classes in the images that also show unknown objects (%)")
    columns = ("ap_k", "p_k", "r_k", "map", "wi")
    unit = "objects"
    sizes = ("unknown_objects",)
    sizes_in = "open_set"
    needs_id_images = False

    def applies(self, scored: ScoredSplit) -> bool:
        """Whether objects of known classes are annotated."""
        return scored.split.shows_known

    def values(self, scored: ScoredSplit, weights: Weights) -> dict[str, Any]:
        """See `farther.metrics.open_set.known_classes.metrics`."""
        flagged = scored.paper_flagged(weights)
        return known_classes.metrics(
            flagged.outcome,
            flagged.table(scored.split.detections),
            unknown_score=flagged.unknown_score,
            weights=flagged.weights(weights.of(flagged.images)),
        )
