"""Mean ranks of methods over several measurements, and the smallest significant difference."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from farther.errors import ParameterError
from farther.tables.arguments import floats, number

#: Level of `STUDENTIZED_RANGE`.
TABLE_LEVEL = 0.95

#: Quantiles of the studentized range of 2, 3, … methods with infinite degrees of freedom, as SciPy
#: computes them.
STUDENTIZED_RANGE = (
    2.771807648699355,
    3.314493155398122,
    3.6331595749026278,
    3.857655510378623,
    4.030092053180576,
    4.169554155006547,
    4.286309409349043,
    4.38650911549537,
    4.474124221725907,
    4.551863584065974,
    4.621655471868518,
    4.684919847313499,
    4.7427317076846975,
    4.795923860431186,
    4.845154183957343,
    4.890951125576789,
    4.933745358126922,
    4.973892348748306,
    5.0116887941184425,
)


@dataclass(frozen=True)
class MeanRanks:
    """Ranks of methods, averaged over measurements.

    Args:
        ranks: Mean rank of each method, 1 is best, ndarray of shape (K,).
        critical_difference: Two methods whose mean ranks differ by less are not significantly
            different.
        p: Of Friedman's test that all methods are equal.
        count: Number of measurements, N.
    """

    ranks: np.ndarray
    critical_difference: float
    p: float
    count: int


def mean_ranks(
    values: np.ndarray, *, higher_is_better: bool = True, level: float = 0.95
) -> MeanRanks:
    """Mean ranks, Nemenyi's critical difference and Friedman's test.

    Demšar, JMLR 7 (2006), Section 3.2.2, https://jmlr.org/papers/v7/demsar06a.html: CD = q √(K
    (K+1) / 6N), with q the quantile of the studentized range over √2. Measurements count as
    independent; where splits share images or runs share a detector, the difference is too small.

    Args:
        values: One row per measurement, one column per method, ndarray of shape (N, K); equal
            values share the mean of their ranks.
        higher_is_better: Whether the largest value has rank 1.
        level: Of the critical difference.

    Raises:
        ParameterError: there are fewer than two methods or measurements, or a value is not a
            number.

    >>> values = np.array([[0.9, 0.8, 0.7], [0.6, 0.7, 0.5], [0.9, 0.8, 0.6], [0.9, 0.5, 0.5]])
    >>> result = mean_ranks(values)
    >>> result.ranks.tolist(), round(result.critical_difference, 3)
    ([1.25, 1.875, 2.875], 1.657)
    """
    from scipy.special import chdtrc

    values = floats(values, "values", shape=(None, None), nan=True)
    level = number(level, "level", above=0, below=1)
    if values.ndim != 2 or min(values.shape) < 2 or np.isnan(values).any():
        raise ParameterError(
            "ranks need numbers of at least 2 methods in at least 2 rows, "
            f"found shape {values.shape}"
        )
    count, methods = values.shape
    best_first = -values if higher_is_better else values
    ranks = np.array([average_ranks(row) for row in best_first])
    mean_rank = ranks.mean(axis=0)
    quantile = _studentized_range(level, methods) / np.sqrt(2)
    critical_difference = float(quantile * np.sqrt(methods * (methods + 1) / (6 * count)))

    # With ties the squared ranks that vary within rows take the place of N K (K+1) (K-1) / 12.
    expected_rank = (methods + 1) / 2
    variation = float(np.sum((ranks - expected_rank) ** 2))
    statistic = 0.0
    if variation > 0:
        between_methods = float(np.sum((mean_rank - expected_rank) ** 2))
        statistic = (methods - 1) * count**2 * between_methods / variation
    p = float(chdtrc(methods - 1, statistic))  # of the chi-squared distribution
    return MeanRanks(mean_rank, critical_difference, p, count)


def average_ranks(values: np.ndarray) -> np.ndarray:
    """Ranks of values, ndarray of shape (N,), the smallest first; equal ones share their mean.

    Args:
        values: Numbers, ndarray of shape (N,), without NaN.

    >>> average_ranks(np.array([0.3, 0.1, 0.3, 0.9])).tolist()
    [2.5, 1.0, 2.5, 4.0]
    """
    values = floats(values, "values")
    _, position, count = np.unique(values, return_inverse=True, return_counts=True)
    last_rank = np.cumsum(count)
    mean_rank = last_rank - (count - 1) / 2
    return np.asarray(mean_rank[position])


@cache
def _studentized_range(level: float, methods: int) -> float:
    """Quantile of the studentized range of `methods` values, with infinite degrees of freedom."""
    if level == TABLE_LEVEL and methods - 2 < len(STUDENTIZED_RANGE):
        return STUDENTIZED_RANGE[methods - 2]
    from scipy.stats import studentized_range  # takes a second to import

    return float(studentized_range.ppf(level, methods, np.inf))
