"""Directed sparsification."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic.dataclasses import dataclass

from farther.methods.base import RegionsLike, register
from farther.methods.logits import ClassesMethod, last_layer, log_sum_exp
from farther.methods.parts.shaping import Percentile
from farther.methods.parts.vectors import VectorMethod, mean_vector
from farther.registry import STRICT
from farther.tables import Regions


@register("dice")
@dataclass(config=STRICT, kw_only=True)
class DICE(ClassesMethod, VectorMethod):
    """The energy through a last layer that keeps only the weights that contribute most on training regions.

    Formula:
        score = log Σ_c exp((w_c ⊙ m_c) · z + b_c), m_cd = 1 where w_cd · mean(z_d) is above its p-th percentile over
        all classes and features, else 0

    Source:
        Sun and Li, "DICE: Leveraging Sparsification for Out-of-Distribution Detection", 2022; FMIYC, Eq. 26.

    Args:
        percentile: p, in per cent.
    """

    title: ClassVar[str] = "DICE"
    percentile: Percentile = 90.0
    needs: ClassVar[frozenset[str]] = frozenset({"features", "last_layer"})

    def _fit(self, regions: RegionsLike) -> None:
        weight, self.bias_ = last_layer(regions, self.background)
        contributions = weight * mean_vector(self._passes(regions))
        self.weight_ = np.where(contributions > np.percentile(contributions, self.percentile), weight, 0.0)

    def _score(self, regions: Regions) -> np.ndarray:
        return log_sum_exp(self._vectors(regions) @ self.weight_.T + self.bias_)
