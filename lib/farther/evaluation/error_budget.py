"""Error budget of a run: the gain of correcting each kind of error, with intervals."""

from __future__ import annotations

from farther.evaluation import intervals
from farther.evaluation.inputs import RunInputs
from farther.evaluation.results import ErrorBudget, Interval, KindOfError, MetricValues
from farther.evaluation.scored_split import ScoredSplit
from farther.metrics.closed_set import ClosedSet
from farther.metrics.errors import error_budget
from farther.metrics.weighting import plain, value


def of_detector(inputs: RunInputs, known: ClosedSet) -> ErrorBudget | None:
    """Errors on known objects of the ID split; None for a classifier of whole images."""
    if inputs.whole_images:
        return None

    iou = inputs.settings.iou
    gains = error_budget.known_gains(known, iou)
    gain_intervals: dict[str, Interval] = {}
    if inputs.id_draws is not None:
        weights = inputs.id_draws.of(known.images)
        replicates = error_budget.known_gains(known, iou, weights)
        measured = intervals.of_metrics(
            {kind: value(gain[0]) for kind, gain in gains.items()}, replicates
        )
        gain_intervals = measured["intervals"]

    errors, _ = error_budget.of_known(known, iou)
    kinds = {}
    for kind, count in errors.counts.items():
        gain = value(gains[kind][0])
        kinds[kind] = KindOfError(count=count, gain=gain, interval=gain_intervals.get(kind))
    return ErrorBudget(ap=value(gains["ap"][0]), kinds=kinds)


def of_method(scored: ScoredSplit) -> dict[str, MetricValues] | None:
    """Errors on unknown objects of an OOD split.

    Args:
        scored: A method's scores of the split.

    Returns:
        Kind of error → `count`, and the gain in each metric; None for a classifier.
    """
    if scored.inputs.whole_images:
        return None

    errors = error_budget.of_unknown(scored.outcome, scored.split.touching)
    gains = error_budget.unknown_gains(scored.outcome, errors, scored.unknown_score)
    replicates = {}
    weights = scored.split.weights
    if weights is not None:
        flagged = scored.flagged(weights)
        near = flagged.pairs(scored.split.touching)
        replicates = error_budget.unknown_gains(
            flagged.outcome,
            error_budget.of_unknown(flagged.outcome, near),
            flagged.unknown_score,
            flagged.weights(weights.of(flagged.images)),
        )

    budget = {}
    for kind, count in errors.counts.items():
        values = {"count": count, **plain(gains[kind])}
        of_kind = intervals.of_metrics(values, replicates.get(kind, {}))
        budget[kind] = MetricValues(values=values, **of_kind)
    return budget
