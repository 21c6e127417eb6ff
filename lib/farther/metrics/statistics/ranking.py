"""Mean ranks of methods over several measurements, and the smallest significant difference."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from farther.errors import ParameterError
from farther.tables.arguments import floats, number


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
    # Its import takes a second.
    from scipy.stats import chi2, studentized_range

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
    # Of infinite degrees of freedom.
    quantile = float(studentized_range.ppf(level, methods, np.inf)) / np.sqrt(2)
    critical_difference = float(quantile * np.sqrt(methods * (methods + 1) / (6 * count)))

    # SciPy's `friedmanchisquare` needs three methods, and is NaN where all ranks are equal. With
    # ties the squared ranks that vary within rows take the place of N K (K+1) (K-1) / 12.
    expected_rank = (methods + 1) / 2
    variation = float(np.sum((ranks - expected_rank) ** 2))
    statistic = 0.0
    if variation > 0:
        between_methods = float(np.sum((mean_rank - expected_rank) ** 2))
        statistic = (methods - 1) * count**2 * between_methods / variation
    p = float(chi2.sf(statistic, methods - 1))
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
