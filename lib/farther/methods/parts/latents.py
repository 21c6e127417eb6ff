"""Latent representation density: a score on principal components of the latent activations."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from pydantic import PositiveInt
from pydantic.dataclasses import dataclass

from farther.methods.base import RegionsLike
from farther.methods.parts.subspaces import principal_components
from farther.methods.parts.vectors import VectorMethod, stored_vectors
from farther.registry import STRICT
from farther.tables import Regions


@dataclass(config=STRICT, kw_only=True)
class PrincipalLatent(VectorMethod):
    """Puts the principal components of the latent activations in the place of the features.

    Args:
        components: Principal components kept, at most as many as there are latent activations.
        whiten: Scale each component to unit variance. The paper does not say; the published code's library does unless
            told otherwise. None does with `protocol="published-code"` only. Distances to Gaussians stay what they are;
            those to neighbours do not.
    """

    components: PositiveInt = 32
    whiten: bool | None = None
    column: ClassVar[Literal["features", "latent"]] = "latent"

    def _fit(self, regions: RegionsLike) -> None:
        self.latent_mean_, self.components_, variances = principal_components(
            lambda: ((stored_vectors(batch, self.column), batch.label) for batch in self._batches(regions)),
            self.components,
        )
        published = getattr(self, "protocol", "paper") == "published-code"
        if published if self.whiten is None else self.whiten:
            self.components_ = self.components_ / np.sqrt(np.where(variances > 0, variances, 1.0))
        super()._fit(regions)

    def _vectors(self, regions: Regions) -> np.ndarray:
        return (super()._vectors(regions) - self.latent_mean_) @ self.components_
