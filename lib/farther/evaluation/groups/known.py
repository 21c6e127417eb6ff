"""What flagging costs the known classes in the images that also show unknown objects."""

from __future__ import annotations

from typing import Any

from farther.evaluation.case import SplitCase
from farther.evaluation.groups.base import GroupTable, MetricGroup
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

    def applies(self, case: SplitCase) -> bool:
        """Where objects of known classes are annotated."""
        return case.split.shows_known

    def values(self, case: SplitCase, weights: Weights) -> dict[str, Any]:
        """See `farther.metrics.open_set.known_classes.metrics`."""
        outcome = case.paper_outcome
        return known_classes.metrics(
            outcome,
            case.split.detections,
            unknown_score=case.unknown_score,
            weights=weights.of(outcome.split.images),
        )
