"""The threshold τ on a score: regions with a lower score are classified as out-of-distribution."""

from __future__ import annotations

import math
from decimal import Decimal
from statistics import NormalDist
from typing import Literal, get_args

import numpy as np

from farther.errors import ParameterError
from farther.methods.base import FitError
from farther.tables.arguments import floats, number, one_of

Rule = Literal["percentile", "gaussian"]


def threshold(scores: np.ndarray, keep: float = 0.95, rule: Rule = "percentile") -> float:
    """The threshold τ that keeps a fraction of in-distribution scores (FMIYC, Eq. 13).

    A score ≥ τ is in-distribution.

    Args:
        scores: ndarray of shape (N,): scores of in-distribution regions; higher means more
            in-distribution.
        keep: Fraction to keep, above 0, at most 1.
        rule: "percentile": the largest τ such that at least that fraction of the scores are ≥ τ,
            the paper's definition, exact with ties; "gaussian": mean − 1.645 · standard deviation
            (for 0.95), the published code's, which keeps that fraction only of Gaussian scores.

    Raises:
        DataError: a score is not finite.
        FitError: there are no scores.
        ParameterError: `keep` or `rule` is not one of those above.

    >>> threshold(np.arange(100.0))
    5.0
    """
    scores = floats(scores, "scores")
    keep = number(keep, "keep", above=0, at_most=1)
    one_of(rule, get_args(Rule), "threshold rule")
    if len(scores) == 0:
        raise FitError("there are no in-distribution scores to take the threshold τ from")
    each_once = np.ones((1, len(scores)), dtype=np.int64)
    return float(weighted_thresholds(scores, each_once, keep, rule)[0])


def weighted_thresholds(
    scores: np.ndarray, weights: np.ndarray, keep: float, rule: Rule
) -> np.ndarray:
    """`threshold` in each of B bootstrap replicates, in which score i counts `weights[b, i]` times.

    Args:
        scores, keep, rule: see `threshold`.
        weights: Integers, ndarray of shape (B, N).

    Returns:
        ndarray of shape (B,); NaN where no score counts.

    Raises:
        ParameterError: see `threshold`.
    """
    total = weights.sum(axis=1)
    has_scores = total > 0
    taus = np.full(len(weights), np.nan)
    if rule == "percentile":
        taus[has_scores] = _percentiles(scores, weights[has_scores], total[has_scores], keep)
    else:
        taus[has_scores] = _gaussian(scores, weights[has_scores], total[has_scores], keep)
    return taus


def _percentiles(
    scores: np.ndarray, weights: np.ndarray, total: np.ndarray, keep: float
) -> np.ndarray:
    """The largest score that keeps the fraction, ndarray of shape (B,)."""
    falling = np.argsort(-scores, kind="stable")
    weight_so_far = np.cumsum(np.take(weights, falling, axis=1), axis=1)
    exact_keep = Decimal(repr(float(keep)))  # 0.07 of 100 is 7, not 7.000000000000001
    taus = np.empty(len(weights))
    for replicate, so_far in enumerate(weight_so_far):
        kept = math.ceil(exact_keep * int(total[replicate]))
        taus[replicate] = scores[falling[np.searchsorted(so_far, kept)]]
    return taus


def _gaussian(
    scores: np.ndarray, weights: np.ndarray, total: np.ndarray, keep: float
) -> np.ndarray:
    """The mean minus some standard deviations, ndarray of shape (B,)."""
    if keep == 1:
        raise ParameterError("keep: the rule 'gaussian' has no value that keeps all of a Gaussian")
    deviations = 1.645 if keep == 0.95 else NormalDist().inv_cdf(keep)
    mean = (weights * scores).sum(axis=1) / total
    squared_deviation = (scores - mean[:, None]) ** 2
    variance = (weights * squared_deviation).sum(axis=1) / total
    return mean - deviations * np.sqrt(variance)
