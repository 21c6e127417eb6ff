"""Activation shaping."""

from __future__ import annotations

from typing import ClassVar, Literal

from farther.methods.activations import Percentile, largest, percentile, sharpening
from farther.methods.arrays import Array, at_least, log_sum_exp
from farther.methods.base import Publication, RegionsLike, register
from farther.methods.logits import LogitsMethod
from farther.methods.rows import Rows


@register("ash")
class ASH(LogitsMethod):
    """The energy after small activations are set to zero and the others are scaled up.

    Formula:
        score = log Σ_c exp(w_c · h' + b_c); h'_d = h_d · exp(s1 / s2) where h_d is kept, else 0,
        with s1 = Σ_d h_d and s2 the sum of the kept ones. Variant "p": h'_d = h_d where kept;
        variant "b": s1 divided by the number kept

    Args:
        variant: "s" scales, "p" only prunes, "b" sets all kept activations to one value.
        percentile: p, in per cent.
        protocol: "paper": activations from the p-th percentile of all training activations on are
            kept; "published-code": the largest (100 − p) per cent of each region's activations, and
            the background logit counts. Of equal activations at the edge the first are kept;
            PyTorch's `topk` may keep others.

    Attributes:
        threshold_: The percentile of all training activations, with the paper's protocol.

    References:
        Djurisic et al., "Extremely Simple Activation Shaping for Out-of-Distribution Detection",
        2023, arXiv:2209.09858. Code: https://github.com/andrijazz/ash

        FMIYC, Eq. 24 and 25.

    Example:
        >>> from farther.methods import create
        >>> from farther.methods.examples import toy_regions
        >>> ash = create("ash", variant="p", percentile=50).fit(
        ...     toy_regions(features=[[0.0], [1.0], [2.0]])
        ... )
        >>> ash.score(toy_regions(features=[[1.5], [0.5]]))  # pruned below 1
        array([1.5, 0. ])
    """

    publication: ClassVar[Publication | None] = Publication(
        "Extremely Simple Activation Shaping for Out-of-Distribution Detection",
        2023,
        "https://arxiv.org/abs/2209.09858",
        code="https://github.com/andrijazz/ash",
    )
    title: ClassVar[str] = "ASH"
    aliases: ClassVar[tuple[str, ...]] = ("Activation shaping",)
    needs: ClassVar[frozenset[str]] = frozenset({"features", "last_layer"})
    variant: Literal["s", "p", "b"] = "s"
    percentile: Percentile = 90.0

    def _fit(self, regions: RegionsLike) -> None:
        if self.protocol == "paper":
            self.threshold_ = percentile(lambda: self._features(regions), self.percentile)

    def _score(self, rows: Rows) -> Array:
        weight, bias = rows.last_layer(self.counted_background)
        h = self._vectors(rows)
        xp = rows.xp
        if self.protocol == "paper":
            kept = h >= self.threshold_
        else:
            kept = largest(h, self.percentile)
        sums = xp.sum(h, axis=1)
        if self.variant == "b":
            h = kept * (sums / at_least(xp.sum(kept, axis=1), 1))[:, None]
        else:
            h *= kept
            if self.variant == "s":
                h *= sharpening(sums, xp.sum(h, axis=1))
        z = h @ weight.T
        z += bias
        return log_sum_exp(z)
