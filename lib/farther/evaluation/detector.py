"""Evaluation of a run's detector, whatever the methods: known classes, wilderness, self-awareness."""

from __future__ import annotations

from typing import Any

from farther.evaluation import across, error_budget, intervals
from farther.evaluation.inputs import RunInputs
from farther.evaluation.self_awareness import evaluate_self_awareness
from farther.evaluation.sweeps import mean_average_precision
from farther.evaluation.wilderness import WildImages
from farther.metrics import closed_set


def evaluate_detector(inputs: RunInputs) -> dict[str, Any]:
    """Metrics of the detector.

    Returns:
        As in `evaluation/<run>.json`: closed_set, error_budget, classifier (None for a detector of objects),
        wilderness, self_awareness, splits; and map_at: {t*: {"map50", "map"}} for the sweep over t*.

    Raises:
        DataError: the calibration split is absent or wrong.
    """
    id_split, settings = inputs.id_split, inputs.settings
    known = closed_set.ClosedSet.of(id_split.objects, id_split.regions())
    summaries = {id_split.name: id_split.summary(inputs.id_regions)}
    summaries |= {split.name: split.data.summary(split.regions) for split in inputs.test_splits}
    matches = closed_set.Matches.of(known)
    of_known = {"closed_set": _closed_set(inputs, matches), "error_budget": error_budget.of_detector(inputs, known)}
    map_at = {str(t): mean_average_precision(matches.whole, t) for t in settings.confidences}
    del known, matches  # they take much memory
    return {
        **of_known,
        "classifier": across.classifier(inputs),
        "wilderness": WildImages(inputs).metrics(),
        "self_awareness": evaluate_self_awareness(inputs),
        "splits": summaries,
        "map_at": map_at,
    }


def _closed_set(inputs: RunInputs, matches: closed_set.Matches) -> dict[str, Any]:
    found = matches.evaluate()
    if inputs.id_draws is not None:
        found["intervals"] = intervals.within(matches.metrics(inputs.id_draws.of(matches.known.images)))
    return found
