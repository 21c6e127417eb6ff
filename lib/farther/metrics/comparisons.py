"""Which of several methods differ by more than chance, where the best of them came out best by chance too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

import numpy as np

from farther.errors import ParameterError
from farther.metrics import bootstrap

#: Whether a comparison with the best allows for the number of methods; see `compare_with`.
Comparisons = Literal["all_pairs", "single"]


def compare_with(
    reference: str,
    values: Mapping[str, float],
    replicates: Mapping[str, np.ndarray],
    comparisons: Comparisons = "all_pairs",
    level: float = 0.95,
) -> dict[str, dict[str, Any]]:
    """Which of several methods differ from one of them in a figure.

    With "all_pairs" the interval and p allow for all the pairs that could have been looked at, and so for the reference
    being the best *because* it came out best: in 95% of samples no pair of equal methods at all is told apart. The
    largest difference of any pair, in standard deviations and around its own mean, is what chance alone can do; its
    95% quantile is the width of every interval (the single-step max-T of Westfall and Young, 1993, which is Tukey's
    range test where figures are normal). With "single" each is compared as if there were no other, by
    `farther.metrics.bootstrap.compare`.

    Args:
        reference: Name of the method that the others are compared with.
        values: The figure of each method.
        replicates: {method: ndarray of shape (B,)}, the figure in replicates of the same draws; those in which any
            method has none are left out.
        comparisons: see above.
        level: Of the intervals.

    Returns:
        {method: {"interval" of its figure minus the reference's, "p"}}, None where no replicate has the figure; the
        reference's own are (0, 0) and 1.

    Raises:
        ParameterError: methods have different numbers of replicates, or the level or `comparisons` is not one of those.
    """
    if comparisons not in get_args(Comparisons):
        raise ParameterError(f"unknown comparisons {comparisons!r}. Known: {', '.join(get_args(Comparisons))}")
    if not 0 < level < 1:
        raise ParameterError(f"a level is between 0 and 1, found {level}")
    if len({len(replicates[name]) for name in values}) > 1:
        raise ParameterError("compare replicates of the same draws")
    if comparisons == "single":
        return {name: bootstrap.compare(replicates[name], replicates[reference], level) for name in values}
    names = list(values)
    table = np.array([replicates[name] for name in names])
    table = table[:, ~np.isnan(table).any(axis=0)]
    if not table.shape[1]:
        return {name: {"interval": None, "p": None} for name in names}
    deviation, largest = _largest_differences(table)
    at = names.index(reference)
    found = {}
    for k, name in enumerate(names):
        difference, width = values[name] - values[reference], deviation[k, at] * float(np.quantile(largest, level))
        rarer = np.sum(largest * deviation[k, at] >= abs(difference))
        p = float((rarer + 1) / (len(largest) + 1))
        found[name] = {"interval": (float(difference - width), float(difference + width)), "p": p}
    return found


def _largest_differences(table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How much differences between methods vary, and the largest of all pairs in each replicate by that measure.

    Args:
        table: ndarray of shape (K, B).

    Returns:
        Standard deviations of the differences, shape (K, K), and ndarray of shape (B,).
    """
    centred = table - table.mean(axis=1, keepdims=True)
    deviation, largest = np.zeros((len(table), len(table))), np.zeros(table.shape[1])
    for k, one in enumerate(centred):
        differences = np.abs(centred - one)
        deviation[k] = np.sqrt(np.mean(differences**2, axis=1))
        varies = deviation[k] > 1e-12  # methods that always agree differ by rounding only
        if varies.any():
            largest = np.maximum(largest, (differences[varies] / deviation[k][varies, None]).max(axis=0))
    return deviation, largest
