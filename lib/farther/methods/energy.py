"""Energy score."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import PositiveFloat
from pydantic.dataclasses import dataclass

from farther.methods.base import register
from farther.methods.logits import LogitsMethod, energies, log_sum_exp, softplus
from farther.registry import STRICT
from farther.tables import Regions


@register("energy")
@dataclass(config=STRICT, kw_only=True)
class Energy(LogitsMethod):
    """The negative free energy of the logits.

    Formula:
        score = T · log Σ_c exp(c_c / T); with `activation="detector"` on a sigmoid head, the joint energy
        T · Σ_c log(1 + exp(c_c / T))

    Source:
        Liu et al., "Energy-based Out-of-distribution Detection", 2020; FMIYC, Eq. 15 (its sign turned). Joint energy:
        Wang et al., "Can multi-label classification networks know what they don't know?", 2021.

    Args:
        temperature: T, above 0.
    """

    title: ClassVar[str] = "Energy"
    temperature: PositiveFloat = 1.0

    def _score(self, regions: Regions) -> np.ndarray:
        if self.temperature == 1 and not self._is_sigmoid(regions):
            return energies(regions, self.background)
        return super()._score(regions)

    def _softmax_score(self, logits: np.ndarray) -> np.ndarray:
        return self.temperature * log_sum_exp(logits / self.temperature)

    def _sigmoid_score(self, logits: np.ndarray) -> np.ndarray:
        return self.temperature * softplus(logits / self.temperature).sum(axis=1)
