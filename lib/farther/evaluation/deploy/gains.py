"""Differences between methods at their settings, tested by a paired bootstrap over images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from farther.evaluation.deploy.results import MethodGain
from farther.metrics.statistics import bootstrap
from farther.metrics.weighting import ImageWeights, ratio

#: What settings are compared by.
Axis = Literal["found", "false_alarms"]

#: Factor by which a larger value of an axis is the better one.
SIGN: dict[Axis, int] = {"found": 1, "false_alarms": -1}


@dataclass(frozen=True)
class PairedCounts:
    """Counts of several methods on the same I images.

    Args:
        axis: What is counted.
        count_by_method: Method → count of each image, ndarray of shape (I,).
        of: Unknown objects of each image, or 1 for false alarms; 0 for images that are left out;
            ndarray of shape (I,).
        weights: Weights of the images in each replicate, shape (B, I); None without replicates.
    """

    axis: Axis
    count_by_method: Mapping[str, np.ndarray]
    of: np.ndarray
    weights: ImageWeights | None

    def values(self) -> dict[str, float]:
        """The value of each method, of which a larger one is better."""
        total = max(int(self.of.sum()), 1)
        sign = SIGN[self.axis]
        return {name: sign * int(count.sum()) / total for name, count in self._counts().items()}

    def replicates(self) -> dict[str, np.ndarray]:
        """The same in each replicate, ndarrays of shape (B,); (0,) without replicates."""
        if self.weights is None:
            return {name: np.zeros(0) for name in self.count_by_method}
        of = self.weights @ self.of
        sign = SIGN[self.axis]
        replicates = {}
        for name, count in self._counts().items():
            replicates[name] = sign * ratio(self.weights @ count, of)
        return replicates

    def _counts(self) -> dict[str, np.ndarray]:
        """The counts, 0 in images that are left out."""
        is_counted = self.of > 0
        return {name: count * is_counted for name, count in self.count_by_method.items()}


def gains_of(
    best: str, counts: PairedCounts, comparisons: bootstrap.Comparisons
) -> dict[str, MethodGain]:
    """By how much a method is better than each of the others.

    Args:
        best: The method.
        counts: Counts of all methods.
        comparisons: Whether intervals allow for the number of methods; see
            `farther.metrics.statistics.bootstrap.compare_with`.
    """
    values = counts.values()
    compared = bootstrap.compare_with(best, values, counts.replicates(), comparisons)
    gains = {}
    for name, value in values.items():
        if name == best:
            continue
        interval = compared[name]["interval"]
        if interval is not None:
            low, high = interval  # of the other method minus the best one
            interval = (-high, -low)
        gains[name] = MethodGain(
            method=best,
            than=name,
            axis=counts.axis,
            value=values[best] - value,
            interval=interval,
        )
    return gains
