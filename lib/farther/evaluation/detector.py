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
    matched = known.match(closed_set.COCO_IOUS)
    of_known = {"closed_set": _closed_set(inputs, known), "error_budget": error_budget.of_detector(inputs, known)}
    map_at = {str(t): mean_average_precision(matched, t) for t in settings.confidences}
    del known, matched  # they take much memory
    return {
        **of_known,
        "classifier": across.classifier(inputs),
        "wilderness": WildImages(inputs).metrics(),
        "self_awareness": evaluate_self_awareness(inputs),
        "splits": summaries,
        "map_at": map_at,
    }


def _closed_set(inputs: RunInputs, known: closed_set.ClosedSet) -> dict[str, Any]:
    found = closed_set.of_closed_set(known)
    if inputs.id_draws is not None:
        found["intervals"] = intervals.within(closed_set.metrics(known, inputs.id_draws.of(known.images)))
    return found
