"""Gain of each method over the baseline, the detector's confidence, as a mean over OOD splits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from farther.evaluation.methods import EvaluatedMethod
from farther.evaluation.results import Gain, Gains
from farther.metrics.catalogue import METRICS
from farther.metrics.statistics import bootstrap

#: Method that the others are compared with, and the metrics of the comparison.
BASELINE = "confidence"
COMPARED = ("auroc", "ap_u")


@dataclass(frozen=True)
class _Mean:
    """A metric as a mean over OOD splits.

    Args:
        value: The mean.
        replicates: The mean in each replicate, shape (B,); shape (0,) without replicates.
    """

    value: float
    replicates: np.ndarray


def gains(evaluated: Mapping[str, EvaluatedMethod]) -> Gains:
    """Means over all OOD test splits, and their differences from the baseline's.

    Args:
        evaluated: The evaluated methods of a run, by their names in params.yaml.

    Returns:
        The baseline is the entry whose method is `confidence`. The interval of a gain is from
        paired replicates. A metric that is not defined in every split is left out; without a
        baseline there are no gains.
    """
    baseline = _baseline(evaluated)
    means_by_method = {name: _means(method) for name, method in evaluated.items()}
    baseline_means: dict[str, _Mean] = {}
    if baseline is not None:
        baseline_means = means_by_method[baseline]

    gains_by_method: dict[str, dict[str, Gain]] = {}
    for name, means in means_by_method.items():
        gains_by_method[name] = {}
        for metric, mean in means.items():
            gains_by_method[name][metric] = _gain(mean, baseline_means.get(metric))
    return Gains(baseline=baseline, methods=gains_by_method)


def _baseline(evaluated: Mapping[str, EvaluatedMethod]) -> str | None:
    """Name of the first entry whose method is the baseline; None where there is none."""
    for name, method in evaluated.items():
        if method.results.fitted.name == BASELINE:
            return name
    return None


def _gain(mean: _Mean, baseline: _Mean | None) -> Gain:
    gain = Gain(value=mean.value)
    if len(mean.replicates):
        gain.interval = bootstrap.interval(mean.replicates, value=mean.value)
    if baseline is not None:
        compared = bootstrap.compare(mean.replicates, baseline.replicates)
        gain.gain = mean.value - baseline.value
        gain.gain_interval = compared["interval"]
        gain.p = compared["p"]
    return gain


def _means(evaluated: EvaluatedMethod) -> dict[str, _Mean]:
    """Mean over splits of each compared metric that is defined in all of them."""
    means = {}
    for name in COMPARED:
        values = []
        replicates_by_split = []
        for split, results in evaluated.results.splits.items():
            values.append(results.value(METRICS[name]))
            if name in evaluated.replicates[split]:
                replicates_by_split.append(evaluated.replicates[split][name])
        if not values or None in values:
            continue

        replicates = np.zeros(0)
        if len(replicates_by_split) == len(values):
            replicates = np.mean(replicates_by_split, axis=0)
        means[name] = _Mean(float(np.mean(np.array(values, dtype=float))), replicates)
    return means
