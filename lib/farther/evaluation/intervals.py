"""95% intervals of metrics, and the difference of each method from the best one."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from farther.evaluation.results import FromBest, Interval, SplitResults
from farther.metrics.catalogue import METRICS, Metric
from farther.metrics.statistics import bootstrap


def within(replicates: Mapping[str, np.ndarray]) -> dict[str, Interval]:
    """The interval of each metric; see `farther.metrics.statistics.bootstrap.interval`."""
    return {name: bootstrap.interval(values) for name, values in replicates.items()}


def against_best(
    results: Mapping[str, SplitResults],
    replicates: Mapping[str, Mapping[str, np.ndarray]],
    comparisons: bootstrap.Comparisons,
) -> dict[str, dict[str, FromBest]]:
    """The difference of each method from the best one, for each metric that methods are ranked by.

    Args:
        results: Results of each method on one split.
        replicates: {method: {metric: ndarray of shape (B,)}}, all of the same draws.
        comparisons: see `farther.metrics.statistics.bootstrap.compare_with`.

    Returns:
        {method: {metric: difference}}; metrics that no method has are left out, and so are methods
        without the metric.
    """
    differences: dict[str, dict[str, FromBest]] = {method: {} for method in replicates}
    for name, metric in METRICS.items():
        if not metric.ranked:
            continue

        value_by_method = {}
        replicates_by_method = {}
        for method in replicates:
            value = results[method].value(metric)
            if value is not None:
                value_by_method[method] = value
                replicates_by_method[method] = replicates[method][name]
        if not value_by_method:
            continue

        best = _best_method(metric, value_by_method)
        compared = bootstrap.compare_with(best, value_by_method, replicates_by_method, comparisons)
        for method, difference in compared.items():
            differences[method][name] = FromBest(best=best, **difference)
    return differences


def _best_method(metric: Metric, value_by_method: Mapping[str, float]) -> str:
    """The method with the best value; of equal ones the first."""
    if metric.higher_is_better is False:
        return min(value_by_method, key=value_by_method.__getitem__)
    return max(value_by_method, key=value_by_method.__getitem__)
