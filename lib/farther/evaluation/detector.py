"""Evaluation of a run's detector, whatever the methods: known classes, wilderness, self-awareness."""

from __future__ import annotations

from farther.evaluation import across, error_budget, intervals
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
    id_split, settings = inputs.id_split, inputs.settings
    known = closed_set.ClosedSet.of(id_split.objects, id_split.regions())
    summaries = {id_split.name: id_split.summary(inputs.id_regions)}
    summaries |= {split.name: split.summary(split.detections) for split in inputs.tested}
    matches = closed_set.Matches.of(known)
    of_closed_set, budget = _closed_set(inputs, matches), error_budget.of_detector(inputs, known)
    map_at = {str(t): mean_average_precision(matches.whole, t) for t in settings.confidences}
    del known, matches  # they take much memory
    return DetectorResults(
        closed_set=of_closed_set,
        error_budget=budget,
        classifier=across.classifier(inputs),
        wilderness=WildImages(inputs).metrics(),
        self_awareness=evaluate_self_awareness(inputs),
        splits=summaries,
        map_at=map_at,
    )


def _closed_set(inputs: RunInputs, matches: closed_set.Matches) -> ClosedSetResults:
    values = matches.evaluate()
    per_class = values.pop("per_class")
    drawn = (
        {} if inputs.id_draws is None else matches.metrics(inputs.id_draws.of(matches.known.images))
    )
    return ClosedSetResults(values=values, intervals=intervals.within(drawn), per_class=per_class)
