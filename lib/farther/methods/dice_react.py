"""Directed sparsification of rectified activations."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic.dataclasses import dataclass

from farther.methods.base import RegionsLike, register
from farther.methods.dice import DICE
from farther.methods.logits import log_sum_exp
from farther.methods.parts.shaping import Percentile, ShapingMethod
from farther.registry import STRICT
from farther.tables import Regions


@register("dice_react")
@dataclass(config=STRICT, kw_only=True)
class DICEReAct(DICE, ShapingMethod):
    """DICE's sparse last layer on ReAct's cut activations. The contributions are those of uncut activations.

    Formula:
        score = log Σ_c exp((w_c ⊙ m_c) · min(z, t) + b_c), m as in DICE, t as in ReAct

    Source:
        Sun and Li, "DICE: Leveraging Sparsification for Out-of-Distribution Detection", 2022.

    Args:
        percentile: DICE's p, in per cent.
        react_percentile: ReAct's p, in per cent.
    """

    title: ClassVar[str] = "DICE+ReAct"
    react_percentile: Percentile = 90.0

    def _fit(self, regions: RegionsLike) -> None:
        super()._fit(regions)
        self.threshold_ = self._activation_percentile(regions, self.react_percentile)

    def _score(self, regions: Regions) -> np.ndarray:
        return log_sum_exp(np.minimum(self._vectors(regions), self.threshold_) @ self.weight_.T + self.bias_)
