"""Simplified Hopfield energy."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic.dataclasses import dataclass

from farther.methods.base import RegionsLike, register
from farther.methods.parts.vectors import VectorMethod, class_means
from farther.registry import STRICT
from farther.tables import Regions


@register("she")
@dataclass(config=STRICT, kw_only=True)
class SHE(VectorMethod):
    """The inner product of the feature with the mean feature of its predicted class.

    The paper stores the means of correctly classified examples; regions know the predicted class only. A class without
    detections has the mean of all.

    Formula:
        score = z · μ_y, y the predicted class

    Source:
        Zhang et al., "Out-of-Distribution Detection based on In-Distribution Data Patterns Memorization with Modern
        Hopfield Energy", 2023.
    """

    title: ClassVar[str] = "SHE"
    needs: ClassVar[frozenset[str]] = frozenset({"features", "labels"})

    def _fit(self, regions: RegionsLike) -> None:
        counts, means = class_means(self._passes(regions), len(regions.header.classes))
        self.patterns_ = np.where(counts[:, None] > 0, means, counts @ means / counts.sum())

    def _score(self, regions: Regions) -> np.ndarray:
        return np.vecdot(self._vectors(regions), self.patterns_[regions.label])
