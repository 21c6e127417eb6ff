"""Latent representation density by nearest neighbours."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic.dataclasses import dataclass

from farther.methods.base import register
from farther.methods.knn import KNN
from farther.methods.parts.latents import PrincipalLatent
from farther.registry import STRICT
from farther.tables import Regions


@register("lard_knn")
@dataclass(config=STRICT, kw_only=True)
class LardKNN(PrincipalLatent, KNN):
    """`knn` on the principal components of the latent activations.

    The paper names this variant in its tables only, and does not say whether components are scaled to unit length, as
    its kNN scales features (Eq. 19). By default they are not: components are taken around the mean, and their length
    says how unusual a region is. The two were compared on the demo's VOC test splits, with 32 components: AUROC 0.61 to
    0.77 as they are, 0.47 to 0.56 at unit length. So results on those splits flatter this default.

    Formula:
        score = − ‖v − v_(k)‖, v = Pᵀ (ō − mean), ō the ROI-aligned latent activations, averaged a channel; with
        `protocol="published-code"` that of `knn`: v whitened, then scaled to unit length

    Source:
        FMIYC, Eq. 32 and 33, and its tables ("KNN PCA"); the published code tries 1 to 128 components.
    """

    title: ClassVar[str] = "LaRD (kNN)"
    needs: ClassVar[frozenset[str]] = frozenset({"latent"})

    def _compared(self, regions: Regions) -> np.ndarray:
        return self._vectors(regions) if self.protocol == "paper" else super()._compared(regions)
