"""User-defined metrics: those that a project names in `evaluate.user_defined`."""

from __future__ import annotations

from typing import Any

from farther.evaluation.groups.base import MetricGroup
from farther.evaluation.scored_split import ScoredSplit
from farther.evaluation.weights import Weights
from farther.metrics.user_defined import Case


class UserDefined(MetricGroup):
    """User-defined metrics; see `farther.metrics.user_defined`.

    They are also stored in the files of metrics, and have no table.
    """

    name = "user_defined"

    def values(self, scored: ScoredSplit, weights: Weights) -> dict[str, Any]:
        """No values: each is stored by itself (`farther.evaluation.kept_results`)."""
        return {}


def user_defined_case(scored: ScoredSplit) -> Case:
    """The input of user-defined metrics: what they may read of a method on a split."""
    return Case(
        id_regions=scored.inputs.id_regions,
        id_scores=scored.method.detections.scores,
        regions=scored.split.detections,
        scores=scored.detections.scores,
        tau=scored.method.tau,
        outcome=scored.outcome,
    )
