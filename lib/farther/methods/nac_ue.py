"""Neuron activation coverage."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field, PositiveFloat, PositiveInt

from farther.methods.arrays import Array, cast, sigmoid, softmax
from farther.methods.base import Method, Publication, RegionsLike, register
from farther.methods.logits import Background
from farther.methods.rows import Rows
from farther.terms import Protocol

#: The published code's bins from 0 to ½ have edges whose powers of this are evenly spaced.
BASE = 1e3
#: What rounding may move a state by, in bins.
ROUNDING = 1e-9


@register("nac_ue")
class NACUE(Method):
    """The share of features whose state was as frequent in training.

    The state of a feature is its value times the gradient of KL(u‖p), squashed to 0 … 1: how much,
    and in which direction, it moves the prediction away from uniform probabilities. A state counts
    fully if training regions had at least O states in its bin.

    The paper adds up several layers. A region has gradients of the last layer alone, whose input
    the paper found the best single one.

    Formula:
        score = (1/D) Σ_d min(n_d[bin(s_d)] / O, 1), s_d = sigmoid(α h_d g_d), g = Wᵀ (p − 1/C), p =
        softmax(z), n_d[i] the number of training regions with s_d in bin i of M

    Args:
        alpha: α, the steepness.
        bins: M, at least 4 and even.
        enough: O, the number of training regions that fill a bin.
        protocol: "paper": M bins of equal width; "published-code": M − 2 bins, the narrower the
            nearer to ½.
        background: "drop" leaves the background logit out, "keep" counts it as one more class.

    Attributes:
        coverage_: min(n_d[i] / O, 1), ndarray of shape (D · M,), the bins of a feature together.
        first_: Place of each feature's first bin in it, ndarray of shape (D,).

    References:
        Liu et al., "Neuron Activation Coverage: Rethinking Out-of-distribution Detection and
        Generalization", 2024, arXiv:2306.02879. Code: https://github.com/BierOne/ood_coverage

    Example:
        >>> from farther.methods import create
        >>> from farther.methods.examples import toy_regions
        >>> nac = create("nac_ue", bins=4, enough=2).fit(toy_regions(features=[[2.0, 0.0]]))
        >>> nac.score(toy_regions(features=[[2.0, 0.0], [0.0, 2.0]]))
        array([0.5, 0. ])
    """

    publication: ClassVar[Publication | None] = Publication(
        "Neuron Activation Coverage: Rethinking Out-of-distribution Detection and Generalization",
        2024,
        "https://arxiv.org/abs/2306.02879",
        code="https://github.com/BierOne/ood_coverage",
    )
    title: ClassVar[str] = "NAC-UE"
    aliases: ClassVar[tuple[str, ...]] = ("NAC", "NACUE", "Neuron activation coverage")
    needs: ClassVar[frozenset[str]] = frozenset({"features", "logits", "last_layer"})
    only_float64: ClassVar[str] = "float32 would put states near an edge into another bin"
    alpha: PositiveFloat = 100.0
    bins: Annotated[int, Field(ge=4, multiple_of=2)] = 50
    enough: PositiveInt = 50
    protocol: Protocol = "paper"
    background: Background = "drop"

    def _fit(self, regions: RegionsLike) -> None:
        counts = np.zeros(0, np.int64)
        for block in self._blocks(regions):
            rows = Rows.of(block)
            if not len(counts):
                width = rows.features.shape[1]
                self.first_ = self.bins * np.arange(width)
                counts = np.zeros(width * self.bins, np.int64)
            counts += np.bincount(self._places(rows).ravel(), minlength=len(counts))
        self.coverage_ = np.minimum(counts / self.enough, 1.0)

    def _score(self, rows: Rows) -> Array:
        return rows.xp.mean(self.coverage_[self._places(rows)], axis=1)

    def _places(self, rows: Rows) -> Array:
        """Place of the bin of each state in `coverage_`, shape (n, D), int64."""
        xp = rows.xp
        weight, _ = rows.last_layer(self.background)
        p = softmax(rows.logits(self.background))
        states = (p - rows.number(1 / int(p.shape[1]))) @ weight
        states *= self._vectors(rows)
        states *= self.alpha
        states = sigmoid(states)
        if self.protocol == "paper":
            bins = xp.floor(states * self.bins + ROUNDING)
            bins = xp.clip(bins, None, self.bins - 1)
        else:
            half = self.bins // 2 - 1
            distances = xp.where(states < 0.5, states, 1 - states)
            steps = half * (BASE**distances - 1) / (math.sqrt(BASE) - 1)
            below = xp.clip(xp.floor(steps + ROUNDING), None, half - 1)
            above = 2 * half - xp.clip(xp.ceil(steps - ROUNDING), 1, None)
            bins = xp.where(states < 0.5, below, above)
        return cast(bins, xp.int64) + self.first_
