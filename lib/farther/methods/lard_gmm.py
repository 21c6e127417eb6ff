"""Latent representation density by Gaussians."""

from __future__ import annotations

from typing import ClassVar

from pydantic.dataclasses import dataclass

from farther.methods.base import register
from farther.methods.ddu import DDU
from farther.methods.parts.latents import PrincipalLatent
from farther.registry import STRICT


@register("lard_gmm")
@dataclass(config=STRICT, kw_only=True)
class LardGMM(PrincipalLatent, DDU):
    """`ddu`, one Gaussian a class, on the principal components of the latent activations.

    Formula:
        score = log Σ_c π_c N(v; μ_c, Σ_c + ε I), v = Pᵀ (ō − mean), ō the ROI-aligned latent activations, averaged a
        channel

    Source:
        FMIYC, Eq. 32 and 33, and its tables ("GMM PCA"); the published code tries 1 to 128 components.
    """

    title: ClassVar[str] = "LaRD (GMM)"
    needs: ClassVar[frozenset[str]] = frozenset({"latent", "labels"})
