"""Nearest-neighbour guidance of the energy."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import PositiveInt
from pydantic.dataclasses import dataclass

from farther.methods.base import FitError, RegionsLike, count_rows, register
from farther.methods.logits import ClassesMethod, energies
from farther.methods.parts.neighbours import largest_products
from farther.methods.parts.vectors import VectorMethod, unit_length
from farther.registry import STRICT
from farther.tables import Regions


@register("nnguide")
@dataclass(config=STRICT, kw_only=True)
class NNGuide(ClassesMethod, VectorMethod):
    """The energy, times the mean similarity to the most similar training regions, weighted by theirs.

    The paper stores a random share of the training set (1% of ImageNet): `fit.max_regions` in params.yaml does.

    Formula:
        score = E · (1/k) Σ_{j in the k largest} E_j u · u_j, u = z / ‖z‖, E = log Σ_c exp(c_c)

    Source:
        Park et al., "Nearest Neighbor Guidance for Out-of-Distribution Detection", 2023.

    Args:
        k: How many training regions guide.
    """

    title: ClassVar[str] = "NNGuide"
    k: PositiveInt = 10
    needs: ClassVar[frozenset[str]] = frozenset({"features", "logits"})

    def _fit(self, regions: RegionsLike) -> None:
        count = count_rows(regions)
        if count < self.k:
            raise FitError(f"{self.name}: {count} regions to fit on, but k is {self.k}; lower k")
        parts = []
        for block in self._blocks(regions):
            energy = energies(block, self.background)
            parts.append((unit_length(self._vectors(block)) * energy[:, None]).astype(np.float32))
        self.bank_ = np.concatenate(parts)

    def _score(self, regions: Regions) -> np.ndarray:
        units = unit_length(self._vectors(regions)).astype(np.float32)
        guidance = largest_products(self.bank_, units, self.k).astype(np.float64).mean(axis=1)
        return guidance * energies(regions, self.background)
