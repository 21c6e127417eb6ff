"""Rectified activations."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic.dataclasses import dataclass

from farther.methods.base import RegionsLike, register
from farther.methods.parts.shaping import Percentile, ShapingMethod
from farther.registry import STRICT


@register("react")
@dataclass(config=STRICT, kw_only=True)
class ReAct(ShapingMethod):
    """The energy after activations are cut off at a percentile of all training activations.

    Formula:
        score = log Σ_c exp(w_c · min(z, t) + b_c), t the p-th percentile of all training activations

    Source:
        Sun et al., "ReAct: Out-of-distribution Detection With Rectified Activations", 2021; FMIYC, Eq. 27.

    Args:
        percentile: p, in per cent.
    """

    title: ClassVar[str] = "ReAct"
    percentile: Percentile = 90.0

    def _fit(self, regions: RegionsLike) -> None:
        self.threshold_ = self._activation_percentile(regions, self.percentile)

    def _shaped(self, vectors: np.ndarray) -> np.ndarray:
        return np.minimum(vectors, self.threshold_, out=vectors)
