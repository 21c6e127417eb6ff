"""Rectified activations."""

from __future__ import annotations

from typing import ClassVar

from farther.methods.activations import Percentile, percentile
from farther.methods.arrays import Array, limited, log_sum_exp
from farther.methods.base import Publication, RegionsLike, register
from farther.methods.logits import LogitsMethod
from farther.methods.rows import Rows


@register("react")
class ReAct(LogitsMethod):
    """The energy after activations are clipped at a percentile of all training activations.

    Formula:
        score = log Σ_c exp(w_c · min(h, t) + b_c), t the p-th percentile of all training
        activations

    Args:
        percentile: p, in per cent.

    Attributes:
        threshold_: t.

    References:
        Sun et al., "ReAct: Out-of-distribution Detection With Rectified Activations", 2021,
        arXiv:2111.12797. Code: https://github.com/deeplearning-wisc/react

        FMIYC, Eq. 27.

    Example:
        >>> from farther.methods import create
        >>> from farther.methods.examples import toy_regions
        >>> react = create("react", percentile=50).fit(toy_regions(features=[[0.0], [1.0], [2.0]]))
        >>> react.threshold_
        1.0
        >>> react.score(toy_regions(features=[[5.0], [0.5]]))
        array([1. , 0.5])
    """

    publication: ClassVar[Publication | None] = Publication(
        "ReAct: Out-of-distribution Detection With Rectified Activations",
        2021,
        "https://arxiv.org/abs/2111.12797",
        code="https://github.com/deeplearning-wisc/react",
    )
    title: ClassVar[str] = "ReAct"
    aliases: ClassVar[tuple[str, ...]] = ("Rectified activations",)
    needs: ClassVar[frozenset[str]] = frozenset({"features", "last_layer"})
    percentile: Percentile = 90.0

    def _fit(self, regions: RegionsLike) -> None:
        self.threshold_ = percentile(lambda: self._features(regions), self.percentile)

    def _score(self, rows: Rows) -> Array:
        weight, bias = rows.last_layer(self.counted_background)
        h = limited(self._vectors(rows), self.threshold_)
        return log_sum_exp(h @ weight.T + bias)
