"""Norm of the feature outside the principal subspace."""

from __future__ import annotations

from typing import ClassVar

from farther.methods.arrays import Array
from farther.methods.base import Publication, RegionsLike, register
from farther.methods.publications import VIM
from farther.methods.rows import Rows
from farther.methods.vim import ViM


@register("residual")
class Residual(ViM):
    """Minus the norm of the feature's residual.

    The residual is the part outside the principal subspace of the training features.

    It is ViM's second term alone, with the parameters and the subspace of `vim`.

    Formula:
        score = − ‖R Rᵀ (h − o)‖, o = − W⁺ b, R the eigenvectors of Σ_i (h_i − o)(h_i − o)ᵀ beyond
        the first `dim`

    Attributes:
        origin_: o, ndarray of shape (D,).
        residual_: R, ndarray of shape (D, D − dim), orthonormal columns.

    References:
        Wang et al., "ViM: Out-Of-Distribution with Virtual-logit Matching", 2022, its baseline
        "Residual", arXiv:2203.10807. Code: https://github.com/haoqiwang/vim

    Example:
        >>> from farther.methods import create
        >>> from farther.methods.examples import toy_regions
        >>> residual = create("residual", dim=1).fit(
        ...     toy_regions(features=[[2.0, 1.0], [2.0, -1.0]])
        ... )
        >>> residual.score(toy_regions(features=[[9.0, 2.0]]))  # outside the first axis
        array([-2.])
    """

    publication: ClassVar[Publication | None] = VIM
    title: ClassVar[str] = "Residual"
    needs: ClassVar[frozenset[str]] = frozenset({"features", "last_layer"})

    def _fit(self, regions: RegionsLike) -> None:
        self._fit_subspace(regions)

    def _score(self, rows: Rows) -> Array:
        return -self._residuals(rows)
