"""Virtual-logit matching."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import PositiveInt

from farther.methods.arrays import Array, squared_norms
from farther.methods.base import Publication, RegionsLike, register
from farther.methods.linear_algebra import eigenvectors, scatter_matrix
from farther.methods.logits import LogitsMethod, class_logits, last_layer
from farther.methods.publications import VIM
from farther.methods.rows import Rows


@register("vim")
class ViM(LogitsMethod):
    """The energy of the logits minus a virtual logit.

    The virtual logit is the norm of the feature's residual, scaled by α.

    The residual is the part of h − o outside the principal subspace of the training features. α is
    the mean largest logit over the mean residual norm of the training regions. Where the largest
    logits are negative on average, as those of sigmoid heads may be, so is α, and a large residual
    then raises the score, as the formula implies.

    Formula:
        score = log Σ_c exp(z_c) − α ‖R Rᵀ (h − o)‖, α = Σ_i max_c z_ic / Σ_i ‖R Rᵀ (h_i − o)‖, o =
        − W⁺ b, R the eigenvectors of Σ_i (h_i − o)(h_i − o)ᵀ beyond the first `dim`

    Args:
        dim: Dimension of the principal subspace; None takes the protocol's. Half the number of
            features where it is not smaller than that number.
        protocol: "paper": 1000 for more than 1000 features, else 512, or half the features where
            there are at most 512; "published-code": 1000 from 2048 features on, 512 from 768 on,
            else half the features, and the background logit counts.

    Attributes:
        origin_: o, ndarray of shape (D,).
        residual_: R, ndarray of shape (D, D − dim), orthonormal columns.
        alpha_: α.

    References:
        Wang et al., "ViM: Out-Of-Distribution with Virtual-logit Matching", 2022, arXiv:2203.10807.
        Code: https://github.com/haoqiwang/vim

        FMIYC, Eq. 28 to 31 (with the opposite sign). Its Eq. 29 projects the features, which it
        calls z, without an origin; the residual here is that of h − o, as Wang et al. define it.

    Example:
        >>> from farther.methods import create
        >>> from farther.methods.examples import toy_regions
        >>> train = toy_regions(features=[[2.0, 1.0], [2.0, -1.0]])
        >>> vim = create("vim", dim=1).fit(train)
        >>> vim.alpha_  # largest logits 2 and 2, residuals 1 and 1: R is the second axis
        2.0
        >>> vim.score(toy_regions(features=[[0.0, 0.0], [0.0, 2.0]])).round(
        ...     4
        ... )  # log 2, log(1 + e²) − 2 · 2
        array([ 0.6931, -1.8731])
    """

    publication: ClassVar[Publication | None] = VIM
    title: ClassVar[str] = "ViM"
    aliases: ClassVar[tuple[str, ...]] = ("Virtual logit matching",)
    needs: ClassVar[frozenset[str]] = frozenset({"features", "logits", "last_layer"})
    dim: PositiveInt | None = None

    def _fit(self, regions: RegionsLike) -> None:
        self._fit_subspace(regions)
        largest = 0.0
        residuals = 0.0
        for block in self._blocks(regions):
            largest += float(class_logits(block, self.counted_background).max(axis=1).sum())
            residuals += float(self._residuals(Rows.of(block)).sum())
        self.alpha_ = 0.0
        if residuals > 0:
            self.alpha_ = largest / residuals

    def _fit_subspace(self, regions: RegionsLike) -> None:
        weight, bias = last_layer(regions, self.counted_background)
        self.origin_ = -np.linalg.pinv(weight) @ bias
        scatter = scatter_matrix(
            np.subtract(h, self.origin_, out=h) for h, _ in self._pass(regions)
        )
        features = len(self.origin_)
        self.residual_ = eigenvectors(scatter, 0, features - self._dimension(features))[1]

    def _dimension(self, features: int) -> int:
        if self.dim is not None and self.dim < features:
            return self.dim
        if self.dim is None:
            if self.protocol == "paper" and features > 1000:
                return 1000
            if self.protocol == "paper" and features > 512:
                return 512
            if self.protocol != "paper" and features >= 2048:
                return 1000
            if self.protocol != "paper" and features >= 768:
                return 512
        return features // 2

    def _score(self, rows: Rows) -> Array:
        return rows.energy(self.counted_background) - self.alpha_ * self._residuals(rows)

    def _residuals(self, rows: Rows) -> Array:
        """‖R Rᵀ (h − o)‖ of each row, shape (n,)."""
        left = self._vectors(rows) @ self.residual_
        left -= self.origin_ @ self.residual_
        return rows.xp.sqrt(squared_norms(left))
