"""Error budget of a run: what correcting each kind of error would be worth, with intervals."""

from __future__ import annotations

from typing import Any

import numpy as np

from farther.evaluation import intervals
from farther.evaluation.inputs import RunInputs, TestSplit
from farther.metrics.closed_set import ClosedSet
from farther.metrics.errors import error_budget
from farther.metrics.open_set.outcomes import Outcome
from farther.metrics.weighting import value


def of_detector(inputs: RunInputs, known: ClosedSet) -> dict[str, Any] | None:
    """Errors on known objects of the ID split.

    Returns:
        {"ap": at the IoU of the evaluation, "kinds": {kind: {"count", "gain", "interval"}}}; None for a classifier,
        whose regions are whole images.
    """
    if inputs.whole_images:
        return None
    iou = inputs.settings.iou
    found = error_budget.known_gains(known, iou)
    counts = error_budget.of_known(known, iou)[0].counts
    kinds: dict[str, Any] = {k: {"count": n, "gain": value(found[k][0])} for k, n in counts.items()}
    if inputs.id_draws is not None:
        drawn = error_budget.known_gains(known, iou, inputs.id_draws.of(known.images))
        for name, interval in intervals.within({name: drawn[name] for name in kinds}).items():
            kinds[name]["interval"] = interval
    return {"ap": value(found["ap"][0]), "kinds": kinds}


def of_method(split: TestSplit, outcome: Outcome, unknown_score: np.ndarray) -> dict[str, Any] | None:
    """Errors on unknown objects of an OOD split.

    Args:
        split: The split.
        outcome: Its outcome under a method.
        unknown_score: Minus the method's scores.

    Returns:
        {kind: {"count", metric: gain, "intervals": {metric: interval}}}; None for a classifier.
    """
    if split.inputs.whole_images:
        return None
    errors = error_budget.of_unknown(outcome, split.touching)
    gains = error_budget.unknown_gains(outcome, errors, unknown_score)
    found = {kind: {"count": n, **gains[kind]} for kind, n in errors.counts.items()}
    if split.draws is not None:
        drawn = error_budget.unknown_gains(outcome, errors, unknown_score, split.draws.of(outcome.split.images))
        for kind, of_kind in drawn.items():
            found[kind]["intervals"] = intervals.within(of_kind)
    return found
