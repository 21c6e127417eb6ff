"""Distance to the k-th nearest training region."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from pydantic import PositiveInt
from pydantic.dataclasses import dataclass

from farther.methods.base import FitError, RegionsLike, count_rows, register
from farther.methods.neighbours import kth_neighbour
from farther.methods.vectors import VectorMethod, unit_length
from farther.registry import STRICT
from farther.tables import Regions


@register("knn")
@dataclass(config=STRICT, kw_only=True)
class KNN(VectorMethod):
    """Minus the distance to the k-th nearest training region, on features scaled to unit length.

    The search compares float32; the distance to the neighbour that it finds is then taken in float64.

    Formula:
        score = − ‖u − u_(k)‖, u = z / ‖z‖

    Source:
        Sun et al., "Out-of-Distribution Detection with Deep Nearest Neighbors", 2022; FMIYC, Eq. 19.

    Args:
        k: Which neighbour, 1 the nearest. The published code takes 10 (Faster R-CNN), 8 (YOLOv8), 12 (RT-DETR).
        protocol: "paper": the distance; "published-code": its square. The order of the scores is the same.
    """

    k: PositiveInt = 10
    protocol: Literal["paper", "published-code"] = "paper"
    needs: ClassVar[frozenset[str]] = frozenset({"features"})

    def _fit(self, regions: RegionsLike) -> None:
        count = count_rows(regions)
        if count < self.k:
            raise FitError(f"{self.name}: {count} regions to fit on, but k is {self.k}; lower k")
        stored, filled = np.zeros((0, 0), np.float32), 0
        for batch in self._batches(regions):
            units = unit_length(self._vectors(batch))
            if filled == 0:
                stored = np.empty((count, units.shape[1]), np.float32)
            stored[filled : filled + len(units)] = units
            filled += len(units)
        self.stored_ = stored

    def _score(self, regions: Regions) -> np.ndarray:
        units = unit_length(self._vectors(regions)).astype(np.float32)
        difference = units.astype(np.float64)
        difference -= self.stored_[kth_neighbour(self.stored_, units, self.k)]
        squares = np.einsum("nd,nd->n", difference, difference)
        return -np.sqrt(squares) if self.protocol == "paper" else -squares
