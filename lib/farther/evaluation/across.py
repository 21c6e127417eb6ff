"""Metrics over all of a benchmark: means over splits, errors on ID images, classifiers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from farther.evaluation import intervals
from farther.evaluation.inputs import RunInputs
from farther.metrics.catalogue import METRICS
from farther.metrics.ood import classification, misclassification
from farther.metrics.weighting import ratio, value


def means(
    results: Mapping[str, Mapping[str, Any]],
    replicates: Mapping[str, Mapping[str, np.ndarray]],
    distance: Mapping[str, str],
) -> dict[str, Any]:
    """Mean over the near, the far and the farther splits, as OpenOOD reports its metrics (arXiv:2210.07242).

    Args:
        results: Results of a method by split.
        replicates: {split: {metric: ndarray of shape (B,)}}.
        distance: Of each split.

    Returns:
        {distance: {"splits": their names, metric: value, "intervals": {metric: interval}}} of the metrics that all of
        the splits have, None where one of them has no value.
    """
    found: dict[str, Any] = {}
    for name in dict.fromkeys(distance[split] for split in distance if split in results):
        splits = [split for split in results if distance.get(split) == name]
        metrics = [m for m in METRICS.values() if m.averaged and all(m.group in results[s] for s in splits)]
        values = {metric.name: [metric.of(results[split]) for split in splits] for metric in metrics}
        drawn = {m: [replicates[s][m] for s in splits] for m in values if all(m in replicates[s] for s in splits)}
        found[name] = {
            "splits": splits,
            **{m: None if None in of else float(np.mean(np.array(of, dtype=float))) for m, of in values.items()},
            "intervals": intervals.within({m: np.mean(of, axis=0) for m, of in drawn.items()}),
        }
    return found


def errors(inputs: RunInputs, id_scores: np.ndarray) -> dict[str, Any]:
    """Misclassification detection by a method on the ID split, with intervals.

    Args:
        id_scores: Scores of the regions at or above t*.
    """
    correct = inputs.is_correct
    counts = {"correct": int(correct.sum()), "errors": int((~correct).sum())}
    found = {**counts, **misclassification.evaluate(id_scores, correct)}
    if inputs.id_draws is not None:
        weights = inputs.id_draws.rows(inputs.id_regions.image_id)
        found["intervals"] = intervals.within(misclassification.evaluate(id_scores, correct, weights))
    return found


def costs(inputs: RunInputs, id_scores: np.ndarray, tau: float) -> dict[str, Any]:
    """Detections on the ID split that a method flags as unknown, with intervals.

    Args:
        id_scores: Scores of the regions at or above t*.
        tau: The method's threshold.

    Returns:
        flagged, id_regions and images, their numbers; false_alarms per image, id_flagged per region.
    """
    images, flagged = len(inputs.id_split.images), id_scores < tau
    counts = {"flagged": int(flagged.sum()), "id_regions": len(id_scores), "images": images}
    rates = {
        "false_alarms": counts["flagged"] / images if images else None,
        "id_flagged": counts["flagged"] / len(id_scores) if len(id_scores) else None,
    }
    if inputs.id_draws is None:
        return {**counts, **rates}
    rows = inputs.id_draws.rows(inputs.id_regions.image_id)
    drawn, regions = rows[flagged].total(), rows.total()
    within = intervals.within({"false_alarms": drawn / max(images, 1), "id_flagged": ratio(drawn, regions)})
    return {**counts, **rates, "intervals": within}


def classifier(inputs: RunInputs) -> dict[str, Any] | None:
    """Accuracy and calibration of a classifier on the ID split, with intervals, and on shifted splits; else None."""
    if not inputs.whole_images:
        return None
    classified = inputs.classified
    found = {name: value(of) for name, of in classification.metrics(classified).items()}
    if inputs.id_draws is not None:
        drawn = classification.metrics(classified, inputs.id_draws.of(classified.images))
        found["intervals"] = intervals.within(drawn)
    shifted = {s.name: classification.Classified.of(s.objects, s.regions()) for s in inputs.shifted}
    of_shifted = {name: classification.metrics(one) for name, one in shifted.items()}
    return {**found, "shifted": {name: {m: value(of) for m, of in v.items()} for name, v in of_shifted.items()}}
