"""Distance to the decision boundaries."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic.dataclasses import dataclass

from farther.methods.base import FitError, RegionsLike, register
from farther.methods.logits import ClassesMethod, class_logits, last_layer
from farther.methods.parts.vectors import VectorMethod, mean_vector, squared_lengths
from farther.registry import STRICT
from farther.tables import Regions

#: Distances to the training mean below this count as this.
SMALLEST = 1e-8


@register("fdbd")
@dataclass(config=STRICT, kw_only=True)
class FDBD(ClassesMethod, VectorMethod):
    """The mean distance to the boundaries with the other classes, by the distance to the training mean.

    The predicted class is the one with the largest logit. A boundary between two classes with the same weights does not
    count.

    Formula:
        score = 1 / (C − 1) Σ_{c ≠ y} (c_y − c_c) / ‖w_y − w_c‖ / ‖z − μ‖

    Source:
        Liu and Qin, "Fast Decision Boundary based Out-of-Distribution Detector", 2024.
    """

    title: ClassVar[str] = "fDBD"
    needs: ClassVar[frozenset[str]] = frozenset({"features", "logits", "last_layer"})

    def _fit(self, regions: RegionsLike) -> None:
        weight, _ = last_layer(regions, self.background)
        if len(weight) < 2:
            raise FitError(f"{self.name}: one class has no decision boundary")
        self.mean_ = mean_vector(self._passes(regions))
        gaps = np.stack([np.linalg.norm(weight - row, axis=1) for row in weight])
        self.inverse_gaps_ = np.divide(1.0, gaps, out=np.zeros_like(gaps), where=gaps > 0)

    def _score(self, regions: Regions) -> np.ndarray:
        logits = class_logits(regions, self.background)
        margins = (logits.max(axis=1, keepdims=True) - logits) * self.inverse_gaps_[logits.argmax(axis=1)]
        vectors = self._vectors(regions)
        vectors -= self.mean_
        away = np.sqrt(squared_lengths(vectors))
        return margins.sum(axis=1) / ((logits.shape[1] - 1) * np.maximum(away, SMALLEST))
