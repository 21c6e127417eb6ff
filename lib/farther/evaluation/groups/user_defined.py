"""User-defined metrics: those that a project asks for in `evaluate.user_defined`."""

from __future__ import annotations

from typing import Any

from farther.evaluation.case import SplitCase
from farther.evaluation.groups.base import MetricGroup
from farther.evaluation.weights import Weights
from farther.metrics.user_defined import Case


class UserDefined(MetricGroup):
    """See `farther.metrics.user_defined`; they are stored in the files of metrics too, and have no table."""

    name = "user_defined"

    def values(self, case: SplitCase, weights: Weights) -> dict[str, Any]:
        """None: each is kept by itself (`farther.evaluation.kept_results`), and has no replicates."""
        return {}


def case_of(case: SplitCase) -> Case:
    """A method on a split, as user-defined metrics take it."""
    return Case(
        id_regions=case.inputs.id_regions,
        id_scores=case.method.of_id.scores,
        regions=case.split.detections,
        scores=case.regions.scores,
        tau=case.method.tau,
        outcome=case.outcome,
    )
