"""Activation scaling."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic.dataclasses import dataclass

from farther.methods.base import register
from farther.methods.parts.shaping import Percentile, ShapingMethod, kept_count, largest_values, sharpening
from farther.registry import STRICT


@register("scale")
@dataclass(config=STRICT, kw_only=True)
class Scale(ShapingMethod):
    """The energy after all activations are scaled up, by how much the largest ones make up of them.

    Formula:
        score = log Σ_c exp(w_c · z · exp(s1 / s2) + b_c), s1 = Σ_d z_d, s2 the sum of the largest (100 − p) per cent of
        the region's own activations

    Source:
        Xu et al., "Scaling for Training Time and Post-hoc Out-of-distribution Detection Enhancement", 2024.

    Args:
        percentile: p, in per cent.
    """

    title: ClassVar[str] = "SCALE"
    percentile: Percentile = 85.0

    def _shaped(self, vectors: np.ndarray) -> np.ndarray:
        kept = largest_values(vectors, kept_count(vectors.shape[1], self.percentile))
        vectors *= sharpening(vectors.sum(axis=1), kept.sum(axis=1, dtype=np.float64))
        return vectors
