"""Mahalanobis distance to the nearest class, relative to that to all classes together."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic.dataclasses import dataclass

from farther.methods.base import RegionsLike, register
from farther.methods.mahalanobis import Mahalanobis
from farther.methods.parts.vectors import second_moment, squared_lengths, whitened, whitening
from farther.registry import STRICT
from farther.tables import Regions


@register("relative_mahalanobis")
@dataclass(config=STRICT, kw_only=True)
class RelativeMahalanobis(Mahalanobis):
    """`mahalanobis`, plus the squared distance to one Gaussian of all regions.

    Formula:
        score = max_c − (z − μ_c)ᵀ Σ⁻¹ (z − μ_c) + (z − μ_0)ᵀ Σ_0⁻¹ (z − μ_0)

    Source:
        Ren et al., "A Simple Fix to Mahalanobis Distance for Improving Near-OOD Detection", 2021.
    """

    title: ClassVar[str] = "Relative Mahalanobis"

    def _fit(self, regions: RegionsLike) -> None:
        super()._fit(regions)
        moment, rows = second_moment(self._passes(regions), self.mean_)
        self.all_whitening_ = whitening(moment / rows)

    def _score(self, regions: Regions) -> np.ndarray:
        centred = self._centred(regions)
        return squared_lengths(whitened(centred.copy(), self.all_whitening_)) - self._distances(centred)
