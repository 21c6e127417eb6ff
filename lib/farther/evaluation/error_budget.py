"""Error budget of a run: what correcting each kind of error would be worth, with intervals."""

from __future__ import annotations

import numpy as np

from farther.evaluation import intervals
from farther.evaluation.inputs import RunInputs, TestSplit
from farther.evaluation.results import ErrorBudget, KindOfError, MetricValues
from farther.metrics.closed_set import ClosedSet
from farther.metrics.errors import error_budget
from farther.metrics.open_set.outcomes import Outcome
from farther.metrics.weighting import plain, value


def of_detector(inputs: RunInputs, known: ClosedSet) -> ErrorBudget | None:
    """Errors on known objects of the ID split; None for a classifier, whose regions are whole images."""
    if inputs.whole_images:
        return None
    iou = inputs.settings.iou
    found = error_budget.known_gains(known, iou)
    counts = error_budget.of_known(known, iou)[0].counts
    draws = inputs.id_draws
    within = (
        {}
        if draws is None
        else intervals.within(error_budget.known_gains(known, iou, draws.of(known.images)))
    )
    kinds = {
        k: KindOfError(count=n, gain=value(found[k][0]), interval=within.get(k))
        for k, n in counts.items()
    }
    return ErrorBudget(ap=value(found["ap"][0]), kinds=kinds)


def of_method(
    split: TestSplit, outcome: Outcome, unknown_score: np.ndarray
) -> dict[str, MetricValues] | None:
    """Errors on unknown objects of an OOD split.

    Args:
        split: The split.
        outcome: Its outcome under a method.
        unknown_score: Minus the method's scores.

    Returns:
        Of each kind `count`, and the gain in each metric; None for a classifier.
    """
    if split.inputs.whole_images:
        return None
    errors = error_budget.of_unknown(outcome, split.touching)
    gains = error_budget.unknown_gains(outcome, errors, unknown_score)
    drawn = {}
    if split.draws is not None:
        drawn = error_budget.unknown_gains(
            outcome, errors, unknown_score, split.draws.of(outcome.split.images)
        )
    return {
        kind: MetricValues(
            values={"count": n, **plain(gains[kind])},
            intervals=intervals.within(drawn.get(kind, {})),
        )
        for kind, n in errors.counts.items()
    }
