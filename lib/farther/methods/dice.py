"""Directed sparsification."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from farther.methods.activations import Percentile, percentile
from farther.methods.arrays import Array, limited, log_sum_exp
from farther.methods.base import Publication, RegionsLike, register
from farther.methods.linear_algebra import mean_vector
from farther.methods.logits import LogitsMethod, last_layer
from farther.methods.rows import Rows


@register("dice")
class DICE(LogitsMethod):
    """The energy through a last layer without its less important weights.

    It keeps the weights that contribute most on training regions.

    Formula:
        score = log Σ_c exp((w_c ⊙ m_c) · h + b_c), m_cd = 1 where w_cd · mean(h_d) is above its
        p-th percentile over all classes and features, else 0

    Args:
        percentile: p, in per cent.

    Attributes:
        weight_: w ⊙ m, ndarray of shape (C, D).
        bias_: b, ndarray of shape (C,).

    References:
        Sun and Li, "DICE: Leveraging Sparsification for Out-of-Distribution Detection", 2022,
        arXiv:2111.09805. Code: https://github.com/deeplearning-wisc/dice

        FMIYC, Eq. 26.

    Example:
        >>> from farther.methods import create
        >>> from farther.methods.examples import toy_regions
        >>> create("dice", percentile=75).fit(
        ...     toy_regions(features=[[1.0, 2.0]])
        ... ).weight_  # contributions 1, 0, 0, 2
        array([[0., 0.],
               [0., 1.]])
    """

    publication: ClassVar[Publication | None] = Publication(
        "DICE: Leveraging Sparsification for Out-of-Distribution Detection",
        2022,
        "https://arxiv.org/abs/2111.09805",
        code="https://github.com/deeplearning-wisc/dice",
    )
    title: ClassVar[str] = "DICE"
    aliases: ClassVar[tuple[str, ...]] = ("Directed sparsification",)
    needs: ClassVar[frozenset[str]] = frozenset({"features", "last_layer"})
    percentile: Percentile = 90.0

    def _fit(self, regions: RegionsLike) -> None:
        weight, self.bias_ = last_layer(regions, self.counted_background)
        mean, _ = mean_vector(h for h, _ in self._pass(regions))
        contributions = weight * mean
        self.weight_ = np.where(
            contributions > np.percentile(contributions, self.percentile), weight, 0.0
        )

    def _score(self, rows: Rows) -> Array:
        return log_sum_exp(self._vectors(rows) @ self.weight_.T + self.bias_)


@register("dice_react")
class DICEReAct(DICE):
    """DICE's sparse last layer on ReAct's clipped activations.

    The contributions are those of unclipped activations.

    Formula:
        score = log Σ_c exp((w_c ⊙ m_c) · min(h, t) + b_c), m as in DICE, t as in ReAct

    Args:
        percentile: DICE's p, in per cent.
        react_percentile: ReAct's p, in per cent.

    Attributes:
        weight_: w ⊙ m, ndarray of shape (C, D).
        bias_: b, ndarray of shape (C,).
        threshold_: t.

    References:
        Sun and Li, "DICE: Leveraging Sparsification for Out-of-Distribution Detection", 2022,
        arXiv:2111.09805. Code: https://github.com/deeplearning-wisc/dice

    Example:
        >>> from farther.methods import create
        >>> from farther.methods.examples import toy_regions
        >>> both = create("dice_react", percentile=75, react_percentile=50).fit(
        ...     toy_regions(features=[[1.0, 2.0]])
        ... )
        >>> both.threshold_
        1.5
    """

    publication: ClassVar[Publication | None] = Publication(
        "DICE: Leveraging Sparsification for Out-of-Distribution Detection",
        2022,
        "https://arxiv.org/abs/2111.09805",
        code="https://github.com/deeplearning-wisc/dice",
    )
    title: ClassVar[str] = "DICE+ReAct"
    react_percentile: Percentile = 90.0

    def _fit(self, regions: RegionsLike) -> None:
        super()._fit(regions)
        self.threshold_ = percentile(lambda: self._features(regions), self.react_percentile)

    def _score(self, rows: Rows) -> Array:
        h = limited(self._vectors(rows), self.threshold_)
        return log_sum_exp(h @ self.weight_.T + self.bias_)
