"""Virtual logit matching."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic.dataclasses import dataclass

from farther.methods.base import RegionsLike, register
from farther.methods.logits import class_logits, energies
from farther.methods.parts.subspaces import ResidualMethod
from farther.registry import STRICT
from farther.tables import Regions


@register("vim")
@dataclass(config=STRICT, kw_only=True)
class ViM(ResidualMethod):
    """The energy of the logits, minus a virtual logit made of the feature's residual.

    α scales residuals to logits: mean of the largest logits over mean residual, of all training regions. Where the
    largest logits are negative on average, as those of sigmoid heads may be, so is α, and the residual counts for
    in-distribution; the formula says so, but one should know.

    Formula:
        score = log Σ_c exp(c_c) − α ‖R Rᵀ (z − o)‖, α = Σ_j max_c c_c^j / Σ_j ‖R Rᵀ (z_j − o)‖, o = − W⁺ b,
        R the eigenvectors of XᵀX beyond the first `dim`

    Source:
        Wang et al., "ViM: Out-Of-Distribution with Virtual-logit Matching", 2022; FMIYC, Eq. 28 to 31 (their sign
        turned).
    """

    title: ClassVar[str] = "ViM"
    needs: ClassVar[frozenset[str]] = frozenset({"features", "logits", "last_layer"})

    def _fit(self, regions: RegionsLike) -> None:
        super()._fit(regions)
        largest, residuals = 0.0, 0.0
        for block in self._blocks(regions):
            largest += float(class_logits(block, self.background).max(axis=1).sum())
            residuals += float(self._residuals(block).sum())
        self.alpha_ = largest / residuals if residuals > 0 else 0.0

    def _score(self, regions: Regions) -> np.ndarray:
        return energies(regions, self.background) - self.alpha_ * self._residuals(regions)
