"""Agreement of reviewers beyond chance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import polars as pl
from sklearn.metrics import cohen_kappa_score


@dataclass(frozen=True)
class Agreement:
    """Agreement between two reviewers on the images that both decided on.

    Args:
        first, second: Their names.
        images: Number of images that both decided on.
        equal: Number of images with equal decisions.
        kappa: Cohen's κ; None where it is not defined.
    """

    first: str
    second: str
    images: int
    equal: int
    kappa: float | None


def cohen_kappa(first: Sequence[str], second: Sequence[str]) -> float | None:
    """Cohen's κ of two raters (Cohen 1960, https://doi.org/10.1177/001316446002000104).

    κ = (p_o - p_e) / (1 - p_e), where p_o is the share of equal ratings and p_e the share that two
    raters with the same frequencies would have by chance. At most 1; 0 is chance. None without
    items, or where both give the same single rating to all (p_e is 1).

    Example:
        >>> round(cohen_kappa(["near", "near", "far", "far"], ["near", "near", "far", "near"]), 6)
        0.5
    """
    if len(first) == len(second) and len({*first, *second}) < 2:
        return None
    return float(cohen_kappa_score(first, second))


def agreements(votes: pl.DataFrame) -> list[Agreement]:
    """Agreement of each pair of reviewers with common images, by name."""
    table = votes.pivot("reviewer", index="image", values="fate")
    reviewers = sorted(set(table.columns) - {"image"})
    pairs = []
    for first, second in combinations(reviewers, 2):
        common = table.select(first, second).drop_nulls()
        if common.is_empty():
            continue
        equal = common.filter(pl.col(first) == pl.col(second)).height
        kappa = cohen_kappa(common[first].to_list(), common[second].to_list())
        pairs.append(Agreement(first, second, common.height, equal, kappa))
    return pairs
