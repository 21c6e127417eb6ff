"""OpenMax: class probabilities with one for the unknown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
from pydantic import PositiveInt
from pydantic.dataclasses import dataclass

from farther.methods.base import RegionsLike, register
from farther.methods.logits import ClassesMethod, class_columns, class_logits, log_sum_exp
from farther.registry import STRICT
from farther.tables import Regions

#: Added to distances before the Weibull distribution is fitted, as the authors' library (libMR) does.
TRANSLATION = 10_000.0
LARGEST_SHAPE = 1e12


@register("openmax")
@dataclass(config=STRICT, kw_only=True)
class OpenMax(ClassesMethod):
    """The log odds of being known, after logits far from their class's mean logits were made smaller.

    Of each class, the largest distances to its mean logits follow a Weibull distribution; its cumulative probability at
    a region's distance is the share by which that class's logit is lowered, most for the class ranked first. What is
    taken away is the logit of "unknown". A region belongs to the class with the largest logit; a class that is never
    largest takes the whole share. Distances are Euclidean.

    Formula:
        score = log Σ_c exp(c_c (1 − ω_c)) − Σ_c c_c ω_c, ω_c = (α + 1 − rank_c) / α · F_c(‖c − m_c‖) for the α largest
        logits, 0 for the others. The probability of "unknown" is 1 / (1 + exp(score))

    Source:
        Bendale and Boult, "Towards Open Set Deep Networks", 2016.

    Args:
        tail: How many of the largest distances of a class the distribution is fitted to.
        alpha: How many of the largest logits are revised, at most all.
    """

    title: ClassVar[str] = "OpenMax"
    tail: PositiveInt = 20
    alpha: PositiveInt = 10
    needs: ClassVar[frozenset[str]] = frozenset({"logits"})

    def _fit(self, regions: RegionsLike) -> None:
        classes = len(class_columns(regions.header, self.background))
        sums, counts = np.zeros((classes, classes)), np.zeros(classes)
        for logits, members in self._members(regions, classes):
            sums += members.T.astype(np.float64) @ logits
            counts += members.sum(axis=0)
        self.centres_ = sums / np.maximum(counts, 1)[:, None]
        tails = [np.zeros(0)] * classes
        for logits, members in self._members(regions, classes):
            distances = euclidean(logits, self.centres_)
            for k in range(classes):
                tails[k] = np.sort(np.concatenate([tails[k], distances[members[:, k], k]]))[-self.tail :]
        self.seen_ = counts > 0
        self.smallest_ = np.array([tail[0] if len(tail) else 0.0 for tail in tails])
        fitted = [fit_weibull(tail - tail[0] + TRANSLATION) if len(tail) else (1.0, 0.0) for tail in tails]
        self.shape_, self.log_scale_ = (np.array(values) for values in zip(*fitted, strict=True))

    def _members(self, regions: RegionsLike, classes: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Logits (n, C) of each batch, and a mask (n, C) of the class with the largest one."""
        for batch in self._batches(regions):
            logits = class_logits(batch, self.background)
            yield logits, logits.argmax(axis=1)[:, None] == np.arange(classes)

    def _score(self, regions: Regions) -> np.ndarray:
        logits = class_logits(regions, self.background)
        alpha = min(self.alpha, logits.shape[1])
        ranks = np.empty(logits.shape)
        order = np.argsort(-logits, axis=1, kind="stable")
        np.put_along_axis(ranks, order, np.arange(1.0, logits.shape[1] + 1)[None], axis=1)
        revised = np.where(ranks <= alpha, (alpha + 1 - ranks) / alpha, 0.0) * self._probabilities(logits)
        return log_sum_exp(logits * (1 - revised)) - (logits * revised).sum(axis=1)

    def _probabilities(self, logits: np.ndarray) -> np.ndarray:
        """F_c of the distance to each class's mean logits, ndarray of shape (n, C)."""
        moved = np.maximum(euclidean(logits, self.centres_) - self.smallest_ + TRANSLATION, np.finfo(np.float64).tiny)
        exponents = np.clip(self.shape_ * (np.log(moved) - self.log_scale_), -700, 700)
        return np.where(self.seen_, -np.expm1(-np.exp(exponents)), 1.0)


def euclidean(rows: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """Euclidean distances, ndarray of shape (n, C)."""
    return np.stack([np.linalg.norm(rows - centre, axis=1) for centre in centres], axis=1)


def fit_weibull(values: np.ndarray) -> tuple[float, float]:
    """Maximum likelihood of a two-parameter Weibull distribution.

    The shape κ solves Σ x^κ log x / Σ x^κ − 1 / κ = mean(log x), whose left side grows with κ; found by halving an
    interval of log κ. Values that are all equal have no finite κ and get 10¹².

    Args:
        values: ndarray of shape (n,), above 0.

    Returns:
        κ and the logarithm of the scale λ.
    """
    logs = np.log(values)
    highest = logs.max()
    below = logs - highest

    def slope(shape: float) -> float:
        powers = np.exp(shape * below)
        return float((powers * below).sum() / powers.sum() - 1 / shape - below.mean())

    low, high = np.log(1e-3), np.log(LARGEST_SHAPE)
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(float(np.exp(middle))) < 0 else (low, middle)
    shape = float(np.exp((low + high) / 2))
    return shape, float(highest + np.log(np.exp(shape * below).mean()) / shape)
