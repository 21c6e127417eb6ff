"""Length of the last layer's gradient."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import PositiveFloat
from pydantic.dataclasses import dataclass

from farther.methods.base import register
from farther.methods.logits import ClassesMethod, class_logits, softmax
from farther.methods.parts.vectors import VectorMethod
from farther.registry import STRICT
from farther.tables import Regions


@register("gradnorm")
@dataclass(config=STRICT, kw_only=True)
class GradNorm(ClassesMethod, VectorMethod):
    """The 1-norm of the gradient, by the last layer's weight, of the cross-entropy to uniform probabilities.

    That gradient is the outer product of the features and of p − 1/C, so its norm is the product of theirs: no network
    is run.

    Formula:
        score = ‖z‖₁ · ‖p − 1/C‖₁ / T, with p = softmax(c / T)

    Source:
        Huang et al., "On the Importance of Gradients for Detecting Distributional Shifts in the Wild", 2021.

    Args:
        temperature: T, above 0.
    """

    title: ClassVar[str] = "GradNorm"
    temperature: PositiveFloat = 1.0
    needs: ClassVar[frozenset[str]] = frozenset({"features", "logits"})

    def _score(self, regions: Regions) -> np.ndarray:
        probabilities = softmax(class_logits(regions, self.background) / self.temperature)
        outputs = np.abs(probabilities - 1 / probabilities.shape[1]).sum(axis=1)
        return np.abs(self._vectors(regions)).sum(axis=1) * outputs / self.temperature
