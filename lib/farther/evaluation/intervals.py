"""95% intervals of metrics, and the difference of each method from the best one."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from farther.evaluation.results import FromBest, Interval, SplitResults
from farther.metrics.catalogue import METRICS
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
    differences: dict[str, dict[str, FromBest]] = {name: {} for name in replicates}
    for name, metric in METRICS.items():
        if not metric.ranked:
            continue
        values = {
            method: value
            for method in replicates
            if (value := results[method].value(metric)) is not None
        }
        if not values:
            continue
        best = (min if metric.higher_is_better is False else max)(
            values, key=lambda method: values[method]
        )
        drawn = {method: replicates[method][name] for method in values}
        for method, difference in bootstrap.compare_with(best, values, drawn, comparisons).items():
            differences[method][name] = FromBest(best=best, **difference)
    return differences
