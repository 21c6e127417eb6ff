"""Latent representation density by Mahalanobis distance."""

from __future__ import annotations

from typing import ClassVar

from pydantic.dataclasses import dataclass

from farther.methods.base import register
from farther.methods.mahalanobis import Mahalanobis
from farther.methods.parts.latents import PrincipalLatent
from farther.registry import STRICT


@register("lard_mahalanobis")
@dataclass(config=STRICT, kw_only=True)
class LardMahalanobis(PrincipalLatent, Mahalanobis):
    """`mahalanobis` on the principal components of the latent activations: the paper's LaRD.

    Formula:
        score = max_c − (v − μ_c)ᵀ Σ⁻¹ (v − μ_c), v = Pᵀ (ō − mean), ō the ROI-aligned latent activations, averaged a
        channel

    Source:
        FMIYC, Eq. 32 and 33, and its tables ("Mahalanobis PCA"); the published code tries 1 to 128 components.
    """

    title: ClassVar[str] = "LaRD (Mahalanobis)"
    needs: ClassVar[frozenset[str]] = frozenset({"latent", "labels"})
