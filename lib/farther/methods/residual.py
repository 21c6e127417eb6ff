"""Length of the feature outside the principal subspace."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic.dataclasses import dataclass

from farther.methods.base import register
from farther.methods.parts.subspaces import ResidualMethod
from farther.registry import STRICT
from farther.tables import Regions


@register("residual")
@dataclass(config=STRICT, kw_only=True)
class Residual(ResidualMethod):
    """Minus the length of what the principal subspace of the training features leaves of a feature.

    Formula:
        score = − ‖R Rᵀ (z − o)‖, o = − W⁺ b, R the eigenvectors of XᵀX beyond the first `dim`

    Source:
        Wang et al., "ViM: Out-Of-Distribution with Virtual-logit Matching", 2022 (its baseline "Residual").
    """

    title: ClassVar[str] = "Residual"

    def _score(self, regions: Regions) -> np.ndarray:
        return -self._residuals(regions)
