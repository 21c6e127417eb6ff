"""Variational rectified activations."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from pydantic import NonNegativeFloat

from farther.methods.activations import Percentile, percentile
from farther.methods.arrays import Array, limited, log_sum_exp
from farther.methods.base import Publication, RegionsLike, register
from farther.methods.logits import LogitsMethod
from farther.methods.rows import Rows


@register("vra")
class VRA(LogitsMethod):
    """The energy after low activations are set to zero and high ones are clipped.

    With γ above 0, activations between the two limits are amplified: VRA+.

    Formula:
        score = log Σ_c exp(w_c · h' + b_c); h'_d = 0 where h_d < α, β where h_d > β, else h_d + γ;
        α and β the lower and upper percentile of training activations

    Args:
        lower: Percentile of α, in per cent.
        upper: Percentile of β, in per cent, at least `lower`.
        gamma: γ, at least 0: 0 is VRA; the published code has 0.6 for VRA+.
        below: Activations below α become "zero", as in the paper, or α ("clip"), as in OpenOOD and
            pytorch-ood.
        protocol: "paper": percentiles of all training activations; "published-code": α and β of
            each feature by itself, and the background logit counts.

    Attributes:
        lower_: α, ndarray of shape (1,), or (D,) with one value per feature.
        upper_: β, likewise.

    References:
        Xu et al., "VRA: Variational Rectified Activation for Out-of-distribution Detection", 2023,
        arXiv:2302.11716. Code: https://github.com/zeroQiaoba/VRA

    Example:
        >>> from farther.methods import create
        >>> from farther.methods.examples import toy_regions
        >>> vra = create("vra", lower=25, upper=75, gamma=0.5).fit(
        ...     toy_regions(features=[[0.0], [1.0], [2.0], [3.0], [4.0]])
        ... )
        >>> vra.lower_.item(), vra.upper_.item()
        (1.0, 3.0)
        >>> vra.score(toy_regions(features=[[0.5], [2.0], [5.0]]))
        array([0. , 2.5, 3. ])
    """

    publication: ClassVar[Publication | None] = Publication(
        "VRA: Variational Rectified Activation for Out-of-distribution Detection",
        2023,
        "https://arxiv.org/abs/2302.11716",
        code="https://github.com/zeroQiaoba/VRA",
    )
    title: ClassVar[str] = "VRA"
    aliases: ClassVar[tuple[str, ...]] = ("Variational rectified activation",)
    needs: ClassVar[frozenset[str]] = frozenset({"features", "last_layer"})
    lower: Percentile = 60.0
    upper: Percentile = 95.0
    gamma: NonNegativeFloat = 0.0
    below: Literal["zero", "clip"] = "zero"

    def __post_init__(self) -> None:
        if self.lower > self.upper:
            raise ValueError(f"lower is {self.lower:g}, but must be at most upper, {self.upper:g}")

    def _fit(self, regions: RegionsLike) -> None:
        if self.protocol == "paper":
            lower = percentile(lambda: self._features(regions), self.lower)
            upper = percentile(lambda: self._features(regions), self.upper)
            self.lower_ = np.array([lower])
            self.upper_ = np.array([upper])
        else:
            activations = np.concatenate(list(self._features(regions)))
            limits = np.percentile(activations, [self.lower, self.upper], axis=0)
            self.lower_, self.upper_ = limits.astype(np.float64)

    def _score(self, rows: Rows) -> Array:
        weight, bias = rows.last_layer(self.counted_background)
        h = self._vectors(rows)
        is_kept = h >= self.lower_
        is_amplified = is_kept & (h <= self.upper_) if self.gamma else None
        h = limited(h, self.upper_)
        if self.below == "zero":
            h *= is_kept
        else:
            h = rows.xp.maximum(h, self.lower_)
        if is_amplified is not None:
            h += rows.number(self.gamma) * is_amplified
        return log_sum_exp(h @ weight.T + bias)
