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
    if rule == "percentile":
        kept = math.ceil(
            Decimal(repr(float(keep))) * len(scores)
        )  # decimal: 0.07 of 100 is 7, not 7.000000000000001
        return float(np.partition(scores, len(scores) - kept)[len(scores) - kept])
    if keep == 1:
        raise ParameterError("keep: the rule 'gaussian' has no value that keeps all of a Gaussian")
    deviations = 1.645 if keep == 0.95 else NormalDist().inv_cdf(keep)
    return float(scores.mean() - deviations * scores.std())
