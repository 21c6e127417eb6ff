"""OpenMax: class probabilities with one for the unknown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
from pydantic import PositiveInt

from farther.methods.arrays import (
    Array,
    ascending_ranks,
    at_least,
    expm1,
    log_sum_exp,
    namespace,
    norms,
)
from farther.methods.base import Annotation, Method, Publication, RegionsLike, register
from farther.methods.linear_algebra import add_class_sums
from farther.methods.logits import Background, class_columns, class_logits
from farther.methods.rows import Rows

#: Added to distances before the Weibull distribution is fitted, as the authors' library (libMR)
#: does.
TRANSLATION = 10_000.0
LARGEST_SHAPE = 1e12
#: exp of this, and of minus this, is a finite number above 0.
LARGEST_POWER = 700


@register("openmax")
class OpenMax(Method):
    """The log odds of being known by OpenMax.

    The logits are lowered by their distance to the mean logits of their class.

    For each class, the largest distances to its mean logits follow a Weibull distribution; its
    cumulative probability at a region's distance is the share by which that class's logit is
    lowered, most for the class ranked first. The sum of what is removed is the logit of "unknown".
    Training regions belong to the class with the largest logit, and with `fit.labels: annotated`
    only those count whose annotated class that is; the logit of a class without such regions is
    lowered by the whole share. Distances are Euclidean.

    Formula:
        score = log Σ_c exp(z_c (1 − ω_c)) − Σ_c z_c ω_c, ω_c = (α + 1 − rank_c) / α · F_c(‖z −
        m_c‖) for the α largest logits, 0 for the others. The probability of "unknown" is 1 / (1 +
        exp(score))

    Args:
        tail: Number of the largest distances of a class that the distribution is fitted to.
        alpha: α, the number of the largest logits that are revised; at most all.
        background: "drop" leaves the background logit out, "keep" counts it as one more class.

    Attributes:
        centres_: m, ndarray of shape (C, C).
        seen_: Classes with training regions, ndarray of shape (C,), bool.
        smallest_: Smallest distance of each class's tail, ndarray of shape (C,).
        shape_, log_scale_: Of the Weibull distributions, ndarrays of shape (C,).
        unspread_: Names of the classes to which no distribution can be fitted.

    References:
        Bendale and Boult, "Towards Open Set Deep Networks", 2016, arXiv:1511.06233. Code:
        https://github.com/abhijitbendale/OSDN

    Example:
        >>> from farther.methods import create
        >>> from farther.methods.examples import toy_regions
        >>> train = toy_regions(logits=[[4.0 + i / 10, 0.0] for i in range(5)] + [[0.0, 4.0]])
        >>> typical, unusual = (
        ...     create("openmax").fit(train).score(toy_regions(logits=[[4.2, 0.0], [9.0, 9.0]]))
        ... )
        >>> bool(typical > 0 > unusual)
        True
    """

    publication: ClassVar[Publication | None] = Publication(
        "Towards Open Set Deep Networks",
        2016,
        "https://arxiv.org/abs/1511.06233",
        code="https://github.com/abhijitbendale/OSDN",
    )
    title: ClassVar[str] = "OpenMax"
    needs: ClassVar[frozenset[str]] = frozenset({"logits"})
    annotation: ClassVar[Annotation] = "correct"
    only_float64: ClassVar[str] = (
        "its distances are moved by 10,000, of which float32 rounds most digits away"
    )
    tail: PositiveInt = 20
    alpha: PositiveInt = 10
    background: Background = "drop"

    def _fit(self, regions: RegionsLike) -> None:
        columns = class_columns(regions.header, self.background)
        classes = len(columns)
        sums = np.zeros((classes, classes))
        counts = np.zeros(classes)
        for logits, largest in self._predicted(regions):
            add_class_sums(sums, logits, largest)
            counts += np.bincount(largest, minlength=classes)
        self.centres_ = sums / np.maximum(counts, 1)[:, None]
        tails = [np.zeros(0)] * classes
        for logits, largest in self._predicted(regions):
            # Laid out as the logits, so that norms add in the same order as those of a score.
            own_centres = np.asarray(self.centres_[largest], order="F")
            to_own_centre = norms(logits - own_centres)
            for k in np.unique(largest).tolist():
                of_class = to_own_centre[largest == k]
                tails[k] = np.sort(np.concatenate([tails[k], of_class]))[-self.tail :]
        self.seen_ = counts > 0
        self.unspread_ = []
        self.smallest_ = np.zeros(classes)
        self.shape_ = np.ones(classes)
        self.log_scale_ = np.zeros(classes)
        for k, tail in enumerate(tails):
            if len(tail):
                self.smallest_[k] = tail[0]
                self.shape_[k], self.log_scale_[k] = fit_weibull(tail - tail[0] + TRANSLATION)
            if self.shape_[k] > LARGEST_SHAPE / 2:
                self.unspread_.append(regions.header.classes[columns[k]])

    def remarks(self) -> list[str]:
        """See `Method.remarks`."""
        if not self.unspread_:
            return []
        count = len(self.unspread_)
        names = f"{count} of {len(self.centres_)} classes"
        if count <= 3:
            names = ", ".join(self.unspread_)
        return [
            f"no Weibull distribution can be fitted to {names} (their detections have one distance "
            f"from the mean): its shape is at its largest value, {LARGEST_SHAPE:g}"
        ]

    def _predicted(self, regions: RegionsLike) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Logits (n, C) of each block, and the column of the largest one per row."""
        for block in self._blocks(regions):
            logits = class_logits(block, self.background)
            yield logits, logits.argmax(axis=1)

    def _score(self, rows: Rows) -> Array:
        logits = rows.logits(self.background)
        xp = rows.xp
        alpha = min(self.alpha, len(self.centres_))
        ranks = ascending_ranks(-logits)
        weights = xp.where(ranks <= alpha, (alpha + 1 - ranks) / alpha, 0.0)
        revised = weights * self._probabilities(rows, logits)
        return log_sum_exp(logits * (1 - revised)) - xp.sum(logits * revised, axis=1)

    def _probabilities(self, rows: Rows, logits: Array) -> Array:
        """F_c of the distance to each class's mean logits, shape (n, C)."""
        xp = rows.xp
        tiny = float(xp.finfo(rows.dtype).smallest_normal)
        moved = at_least(euclidean(logits, self.centres_) - self.smallest_ + TRANSLATION, tiny)
        exponents = self.shape_ * (xp.log(moved) - self.log_scale_)
        exponents = xp.clip(exponents, -LARGEST_POWER, LARGEST_POWER)
        return xp.where(self.seen_, -expm1(-xp.exp(exponents)), 1.0)


def euclidean(rows: Array, centres: Array) -> Array:
    """Euclidean distances, shape (n, C)."""
    return namespace(rows).stack([norms(rows - centre) for centre in centres], axis=1)


def fit_weibull(values: np.ndarray) -> tuple[float, float]:
    """Maximum likelihood fit of a two-parameter Weibull distribution.

    The shape κ solves Σ x^κ log x / Σ x^κ − 1 / κ = mean(log x), whose left side increases with κ;
    found by bisection of log κ. Equal values have no finite κ and get 10¹².

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

    low = np.log(1e-3)
    high = np.log(LARGEST_SHAPE)
    for _ in range(100):
        middle = (low + high) / 2
        if slope(float(np.exp(middle))) < 0:
            low = middle
        else:
            high = middle
    shape = float(np.exp((low + high) / 2))
    return shape, float(highest + np.log(np.exp(shape * below).mean()) / shape)
