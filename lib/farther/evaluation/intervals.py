"""95% intervals of metrics, and the difference of each method from the best one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypedDict

import numpy as np

from farther.evaluation.results import FromBest, Interval, SplitResults
from farther.metrics.catalogue import METRICS, Metric
from farther.metrics.statistics import bootstrap


class Intervals(TypedDict):
    """The fields of `MetricValues` on intervals."""

    intervals: dict[str, Interval]
    no_interval: dict[str, str]
    share_images: dict[str, int]


def of_metrics(
    values: Mapping[str, Any],
    replicates: Mapping[str, np.ndarray],
    images: Mapping[str, int] | None = None,
    problem: str = "",
) -> Intervals:
    """The intervals of metrics, and why some have none.

    See `farther.metrics.statistics.bootstrap.interval`.

    Args:
        values: The metrics of the images as they are.
        replicates: Metric → its value in each replicate, ndarray of shape (B,).
        images: Share → number of the images with the units that it counts. A share of 0 or 1 has an
            exact interval.
        problem: Why the draws are no base of an interval; empty where they are.
    """
    images = images or {}
    intervals: dict[str, Interval] = {}
    no_interval = {}
    for name, metric_replicates in replicates.items():
        value = values.get(name)
        intervals[name] = None
        if value is None:
            continue
        is_exact = name in images and value in (0, 1)
        if is_exact or not problem:
            intervals[name] = bootstrap.interval(
                metric_replicates, value=value, images=images.get(name)
            )
        reason = problem or bootstrap.why_no_interval(metric_replicates, value)
        if intervals[name] is None:
            no_interval[name] = reason
    return Intervals(intervals=intervals, no_interval=no_interval, share_images=dict(images))


def against_best(
    results: Mapping[str, SplitResults],
    replicates: Mapping[str, Mapping[str, np.ndarray]],
    comparisons: bootstrap.Comparisons,
    few_images: Callable[[str], str] | None = None,
) -> dict[str, dict[str, FromBest]]:
    """The difference of each method from the best one, for each metric that methods are ranked by.

    Args:
        results: Results of each method on one split.
        replicates: {method: {metric: ndarray of shape (B,)}}, all of the same draws.
        comparisons: see `farther.metrics.statistics.bootstrap.compare_with`.
        few_images: Why resamples of the images say nothing of the metrics of a group, by its name;
            "" where they do. Differences then have neither interval nor p.

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
        problem = few_images(metric.group) if few_images is not None else ""
        for method, difference in compared.items():
            if problem:
                difference = {"interval": None, "p": None, "why_none": problem}
            differences[method][name] = FromBest(best=best, **difference)
    return differences


def _best_method(metric: Metric, value_by_method: Mapping[str, float]) -> str:
    """The method with the best value; of equal ones the first by name."""
    if metric.higher_is_better is False:
        return min(sorted(value_by_method), key=value_by_method.__getitem__)
    return max(sorted(value_by_method), key=value_by_method.__getitem__)
