"""Distance to the k-th nearest training region."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from pydantic import NonNegativeInt, PositiveInt
from pydantic.dataclasses import dataclass

from farther.methods.base import FitError, RegionsLike, count_rows, register
from farther.methods.parts.inverted_file import InvertedFile
from farther.methods.parts.neighbours import nearest
from farther.methods.parts.vectors import VectorMethod, squared_lengths, unit_length
from farther.registry import STRICT
from farther.tables import Regions


@register("knn")
@dataclass(config=STRICT, kw_only=True)
class KNN(VectorMethod):
    """Minus the distance to the k-th nearest training region, on features scaled to unit length.

    The search compares float32; the distance to the neighbour that it finds is then taken in float64. It is exact
    unless `index="approximate"` is asked for; then `recall_` in the fitted state says how much of the k nearest the
    index finds, of 1,000 training regions at random, and the report shows it.

    Formula:
        score = − ‖u − u_(k)‖, u = z / ‖z‖

    Source:
        Sun et al., "Out-of-Distribution Detection with Deep Nearest Neighbors", 2022; FMIYC, Eq. 19.

    Args:
        k: Which neighbour, 1 the nearest. The published code takes 10 (Faster R-CNN), 8 (YOLOv8), 12 (RT-DETR).
        index: "exact", or "approximate": training regions in lists, of which a query looks through a few.
        probes: How many lists a query looks through in an approximate index.
        seed: Of the draws that an approximate index starts from, and that its recall is measured on.
        protocol: "paper": the distance; "published-code": its square. The order of the scores is the same.
    """

    title: ClassVar[str] = "kNN"
    k: PositiveInt = 10
    index: Literal["exact", "approximate"] = "exact"
    probes: PositiveInt = 16
    seed: NonNegativeInt = 0
    protocol: Literal["paper", "published-code"] = "paper"
    needs: ClassVar[frozenset[str]] = frozenset({"features"})

    def _fit(self, regions: RegionsLike) -> None:
        self.stored_ = self._stored_units(regions)
        if self.index == "approximate":
            lists = InvertedFile.build(self.stored_, self.seed)
            self.stored_, self.centroids_, self.starts_ = lists.stored, lists.centroids, lists.starts
            self.recall_ = lists.recall(self.k, self.probes, self.seed)

    def _stored_units(self, regions: RegionsLike) -> np.ndarray:
        """All training vectors at unit length, ndarray of shape (M, D), float32."""
        count = count_rows(regions)
        if count < self.k:
            raise FitError(f"{self.name}: {count} regions to fit on, but k is {self.k}; lower k")
        stored, filled = np.zeros((0, 0), np.float32), 0
        for block in self._blocks(regions):
            units = self._compared(block)
            if filled == 0:  # once, at its final size: two copies of the largest thing here may not fit
                stored = np.empty((count, units.shape[1]), np.float32)
            stored[filled : filled + len(units)] = units
            filled += len(units)
        return stored

    def _compared(self, regions: Regions) -> np.ndarray:
        """The vectors between which distances are taken, ndarray of shape (n, D), float64."""
        return unit_length(self._vectors(regions))

    def _score(self, regions: Regions) -> np.ndarray:
        units = self._compared(regions).astype(np.float32)
        difference = units.astype(np.float64)
        difference -= self.stored_[self._kth(units)]
        squares = squared_lengths(difference)
        return -np.sqrt(squares) if self.protocol == "paper" else -squares

    def _kth(self, units: np.ndarray) -> np.ndarray:
        if self.index == "exact":
            return nearest(self.stored_, units, self.k)[:, -1]
        return InvertedFile(self.centroids_, self.stored_, self.starts_).nearest(units, self.k, self.probes)[:, -1]
