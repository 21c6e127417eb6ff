"""Metrics of a run's detector, which depend on no method.

They are those of known classes, of wilderness, and of self-awareness.
"""

from __future__ import annotations

import numpy as np

from farther.evaluation import error_budget, intervals, summaries
from farther.evaluation.inputs import RunInputs
from farther.evaluation.results import ClosedSetResults, DetectorResults
from farther.evaluation.self_awareness import evaluate_self_awareness
from farther.evaluation.sweeps import mean_average_precision
from farther.evaluation.wilderness import WildImages
from farther.metrics import closed_set


def evaluate_detector(inputs: RunInputs) -> DetectorResults:
    """Metrics of the detector.

    Raises:
        DataError: the calibration split is absent or wrong.
    """
    id_split = inputs.id_split
    counts_by_split = {id_split.name: id_split.summary(inputs.id_regions)}
    for split in inputs.tested:
        counts_by_split[split.name] = split.summary(split.detections)

    known = closed_set.ClosedSet.of(id_split.objects, id_split.regions())
    matches = closed_set.Matches.of(known)
    closed_set_results = _closed_set(inputs, matches)
    budget = error_budget.of_detector(inputs, known)
    map_at = {}
    for confidence in inputs.settings.confidences:
        map_at[str(confidence)] = mean_average_precision(matches.whole, confidence)
    del known, matches  # they take much memory

    return DetectorResults(
        closed_set=closed_set_results,
        error_budget=budget,
        classifier=summaries.classifier_results(inputs),
        wilderness=WildImages(inputs).metrics(),
        self_awareness=evaluate_self_awareness(inputs),
        splits=counts_by_split,
        map_at=map_at,
    )


def _closed_set(inputs: RunInputs, matches: closed_set.Matches) -> ClosedSetResults:
    values = matches.evaluate()
    per_class = values.pop("per_class")
    replicates = _replicates(inputs, matches)
    return ClosedSetResults(
        values=values, **intervals.of_metrics(values, replicates), per_class=per_class
    )


def _replicates(inputs: RunInputs, matches: closed_set.Matches) -> dict[str, np.ndarray]:
    """The metrics of known classes in each replicate; {} without replicates."""
    if inputs.id_draws is None:
        return {}
    return matches.metrics(inputs.id_draws.of(matches.known.images))


def known_class_replicates(inputs: RunInputs) -> dict[str, np.ndarray]:
    """The detector's metrics on the ID split in each replicate, computed from its regions.

    They are those of known classes by their keys in `ClosedSetResults` ("ap", "ap50"), and for a
    classifier also those in `ClassifierResults` ("accuracy").

    Returns:
        {key: ndarray of shape (B,)}; {} without replicates.

    Raises:
        DataError: regions or objects are absent or wrong.
    """
    id_split = inputs.id_split
    known = closed_set.ClosedSet.of(id_split.objects, id_split.regions())
    replicates = _replicates(inputs, closed_set.Matches.of(known))
    if inputs.whole_images:
        replicates |= summaries.classifier_replicates(inputs)
    return replicates
