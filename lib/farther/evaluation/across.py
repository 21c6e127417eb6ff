"""Metrics over all of a benchmark: means over splits, errors on ID images, classifiers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from farther.evaluation import intervals
from farther.evaluation.inputs import RunInputs
from farther.evaluation.results import ClassifierResults, MeanOverSplits, MetricValues, SplitResults
from farther.metrics.catalogue import METRICS
from farther.metrics.ood import classification, misclassification
from farther.metrics.weighting import plain, ratio


def means(
    results: Mapping[str, SplitResults],
    replicates: Mapping[str, Mapping[str, np.ndarray]],
    distance: Mapping[str, str],
) -> dict[str, MeanOverSplits]:
    """Mean over the near, the far and the farther splits, as OpenOOD reports its metrics (arXiv:2210.07242).

    Args:
        results: Results of a method by split.
        replicates: {split: {metric: ndarray of shape (B,)}}.
        distance: Of each split.

    Returns:
        Distance → means of the metrics that all of its splits have, None where one of them has no
        value.
    """
    found = {}
    for name in dict.fromkeys(distance[split] for split in distance if split in results):
        splits = [split for split in results if distance.get(split) == name]
        metrics = [
            m
            for m in METRICS.values()
            if m.averaged and all(m.group in results[s].groups for s in splits)
        ]
        values = {
            metric.name: [results[split].value(metric) for split in splits] for metric in metrics
        }
        drawn = {
            m: [replicates[s][m] for s in splits]
            for m in values
            if all(m in replicates[s] for s in splits)
        }
        found[name] = MeanOverSplits(
            splits=splits,
            values={
                m: None if None in of else float(np.mean(np.array(of, dtype=float)))
                for m, of in values.items()
            },
            intervals=intervals.within({m: np.mean(of, axis=0) for m, of in drawn.items()}),
        )
    return found


def errors(inputs: RunInputs, id_scores: np.ndarray) -> MetricValues:
    """Misclassification detection by a method on the ID split, with intervals.

    Args:
        id_scores: Scores of the regions at or above t*.
    """
    correct = inputs.is_correct
    counts = {"correct": int(correct.sum()), "errors": int((~correct).sum())}
    values, drawn = {**counts, **misclassification.evaluate(id_scores, correct)}, {}
    if inputs.id_draws is not None:
        weights = inputs.id_draws.rows(inputs.id_regions.image_id)
        drawn = misclassification.evaluate(id_scores, correct, weights)
    return MetricValues(values=values, intervals=intervals.within(drawn))


def costs(inputs: RunInputs, id_scores: np.ndarray, tau: float) -> MetricValues:
    """Detections on the ID split that a method flags as unknown, with intervals.

    Args:
        id_scores: Scores of the regions at or above t*.
        tau: The method's threshold.

    Returns:
        flagged, id_regions and images, their numbers; false_alarms per image, id_flagged per
        region.
    """
    images, flagged = len(inputs.id_split.images), id_scores < tau
    counts = {"flagged": int(flagged.sum()), "id_regions": len(id_scores), "images": images}
    rates = {
        "false_alarms": counts["flagged"] / images if images else None,
        "id_flagged": counts["flagged"] / len(id_scores) if len(id_scores) else None,
    }
    drawn = {}
    if inputs.id_draws is not None:
        rows = inputs.id_draws.rows(inputs.id_regions.image_id)
        alarms = rows[flagged].total()
        drawn = {"false_alarms": alarms / max(images, 1), "id_flagged": ratio(alarms, rows.total())}
    return MetricValues(values={**counts, **rates}, intervals=intervals.within(drawn))


def classifier(inputs: RunInputs) -> ClassifierResults | None:
    """Accuracy and calibration of a classifier on the ID split, with intervals, and on shifted splits; else None."""
    if not inputs.whole_images:
        return None
    classified, draws = inputs.classified, inputs.id_draws
    drawn = {} if draws is None else classification.metrics(classified, draws.of(classified.images))
    shifted = {s.name: classification.Classified.of(s.objects, s.regions()) for s in inputs.shifted}
    return ClassifierResults(
        values=plain(classification.metrics(classified)),
        intervals=intervals.within(drawn),
        shifted={name: plain(classification.metrics(one)) for name, one in shifted.items()},
    )
