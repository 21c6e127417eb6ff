"""Mahalanobis distance to the nearest class, relative to that to all classes together."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from farther.methods.arrays import Array, squared_norms, whitened
from farther.methods.base import Publication, RegionsLike, register
from farther.methods.linear_algebra import scatter_matrix, whitening
from farther.methods.mahalanobis import Mahalanobis
from farther.methods.rows import Rows


@register("relative_mahalanobis")
class RelativeMahalanobis(Mahalanobis):
    """`mahalanobis` plus the squared Mahalanobis distance to one Gaussian of all training regions.

    Formula:
        score = max_c − (h − μ_c)ᵀ Σ⁻¹ (h − μ_c) + (h − μ_0)ᵀ Σ_0⁻¹ (h − μ_0), μ_0 and Σ_0 mean and
        covariance of all training features

    Attributes:
        mean_: μ_0, ndarray of shape (D,).
        whitening_: A with A Aᵀ = Σ⁻¹, ndarray of shape (D, r).
        centres_: Whitened class means (μ_c − μ_0) A, ndarray of shape (C, r).
        all_whitening_: B with B Bᵀ = Σ_0⁻¹, ndarray of shape (D, s).

    References:
        Ren et al., "A Simple Fix to Mahalanobis Distance for Improving Near-OOD Detection", 2021,
        arXiv:2106.09022.

    Example:
        >>> from farther.methods import create
        >>> from farther.methods.examples import toy_regions
        >>> train = toy_regions(
        ...     features=[[-1.0, 0.0], [1.0, 0.0], [0.0, 2.0], [0.0, -2.0]], label=[0, 0, 0, 0]
        ... )
        >>> relative = create("relative_mahalanobis").fit(
        ...     train
        ... )  # one class: both distances are equal
        >>> abs(relative.score(toy_regions(features=[[5.0, 3.0]]))).round(9)
        array([0.])
    """

    publication: ClassVar[Publication | None] = Publication(
        "A Simple Fix to Mahalanobis Distance for Improving Near-OOD Detection",
        2021,
        "https://arxiv.org/abs/2106.09022",
    )
    title: ClassVar[str] = "Relative Mahalanobis"
    aliases: ClassVar[tuple[str, ...]] = ("RMDS", "RMD", "Relative Mahalanobis distance")

    def _fit(self, regions: RegionsLike) -> None:
        super()._fit(regions)
        scatter = scatter_matrix(np.subtract(h, self.mean_, out=h) for h, _ in self._pass(regions))
        self.all_whitening_ = whitening(
            scatter / sum(len(block) for block in self._blocks(regions))
        )

    def _score(self, rows: Rows) -> Array:
        h = self._vectors(rows)
        h -= self.mean_
        again = rows.xp.asarray(h, copy=True)
        return squared_norms(whitened(again, self.all_whitening_)) - self._distances(h)
