"""Latent representation density by nearest neighbours."""

from __future__ import annotations

from typing import ClassVar

from pydantic.dataclasses import dataclass

from farther.methods.base import register
from farther.methods.knn import KNN
from farther.methods.latents import PrincipalLatent
from farther.registry import STRICT


@register("lard_knn")
@dataclass(config=STRICT, kw_only=True)
class LardKNN(PrincipalLatent, KNN):
    """`knn` on the principal components of the latent activations.

    Formula:
        score = − ‖u − u_(k)‖, u = v / ‖v‖, v = Pᵀ (ō − mean), ō the ROI-aligned latent activations, averaged a channel

    Source:
        FMIYC, Eq. 32 and 33, and its tables ("KNN PCA"); the published code tries 1 to 128 components.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"latent"})
