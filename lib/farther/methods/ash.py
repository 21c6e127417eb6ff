"""Activation shaping."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from pydantic.dataclasses import dataclass

from farther.methods.base import RegionsLike, register
from farther.methods.parts.shaping import Percentile, ShapingMethod, largest, sharpening
from farther.registry import STRICT


@register("ash")
@dataclass(config=STRICT, kw_only=True)
class ASH(ShapingMethod):
    """The energy after small activations are set to zero and the others are scaled up.

    Formula:
        score = log Σ_c exp(w_c · z' + b_c); z'_d = z_d · exp(s1 / s2) where z_d is kept, else 0, with s1 = Σ_d z_d and
        s2 the sum of the kept ones. Variant "p": z'_d = z_d where kept; variant "b": s1 divided by the number kept

    Source:
        Djurisic et al., "Extremely Simple Activation Shaping for Out-of-Distribution Detection", 2022; FMIYC, Eq. 24
        and 25.

    Args:
        variant: "s" scales, "p" only prunes, "b" makes all kept activations equal.
        percentile: p, in per cent.
        protocol: "paper": kept are activations from the p-th percentile of all training activations on;
            "published-code": the largest (100 − p) per cent of each region's own.
    """

    title: ClassVar[str] = "ASH"
    variant: Literal["s", "p", "b"] = "s"
    percentile: Percentile = 90.0
    protocol: Literal["paper", "published-code"] = "paper"

    def _fit(self, regions: RegionsLike) -> None:
        if self.protocol == "paper":
            self.threshold_ = self._activation_percentile(regions, self.percentile)

    def _shaped(self, vectors: np.ndarray) -> np.ndarray:
        kept = vectors >= self.threshold_ if self.protocol == "paper" else largest(vectors, self.percentile)
        sums = vectors.sum(axis=1)
        if self.variant == "b":
            return kept * (sums / np.maximum(kept.sum(axis=1), 1))[:, None]
        vectors *= kept
        if self.variant == "s":
            vectors *= sharpening(sums, vectors.sum(axis=1))
        return vectors
