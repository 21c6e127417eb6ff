"""Principal subspaces of features, around the origin in which the last layer has no bias."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from pydantic import PositiveInt
from pydantic.dataclasses import dataclass

from farther.methods.base import RegionsLike
from farther.methods.logits import ClassesMethod, last_layer
from farther.methods.parts.vectors import Passes, VectorMethod, mean_vector, second_moment, squared_lengths
from farther.registry import STRICT
from farther.tables import Regions


@dataclass(config=STRICT, kw_only=True)
class ResidualMethod(ClassesMethod, VectorMethod):
    """Base of the scores on what the principal subspace of the training features leaves of a feature.

    Args:
        dim: Dimension of the principal subspace; None takes the protocol's. Half of the features where it is no less
            than their number.
        protocol: "paper": 1000 for more than 1000 features, else 512, or half of them where there are no more than
            that; "published-code": 1000 from 2048 features on, 512 from 768 on, else half of them.
    """

    dim: PositiveInt | None = None
    protocol: Literal["paper", "published-code"] = "paper"
    needs: ClassVar[frozenset[str]] = frozenset({"features", "last_layer"})

    def _fit(self, regions: RegionsLike) -> None:
        weight, bias = last_layer(regions, self.background)
        self.origin_ = -np.linalg.pinv(weight) @ bias
        self.residual_ = residual_basis(self._passes(regions), self.origin_, self._dimension(weight.shape[1]))

    def _dimension(self, features: int) -> int:
        if self.dim is not None and self.dim < features:
            return self.dim
        if self.dim is None and self.protocol == "paper":
            wanted = 1000 if features > 1000 else 512
            return wanted if wanted < features else features // 2
        if self.dim is None and features >= 768:
            return 1000 if features >= 2048 else 512
        return features // 2

    def _residuals(self, regions: Regions) -> np.ndarray:
        """Length of what the principal subspace leaves of each feature vector, ndarray of shape (n,)."""
        left = self._vectors(regions) @ self.residual_
        left -= self.origin_ @ self.residual_
        return np.sqrt(squared_lengths(left))


def residual_basis(passes: Passes, origin: np.ndarray, dimension: int) -> np.ndarray:
    """Orthonormal columns that span what the principal subspace around `origin` leaves (FMIYC, Eq. 28).

    Returns:
        ndarray of shape (D, D − dimension): the eigenvectors of XᵀX with the smallest eigenvalues.
    """
    moment, _ = second_moment(passes, origin)
    return eigenvectors(moment, 0, len(origin) - dimension)[1]


def principal_components(passes: Passes, components: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean, directions of largest variance, and those variances, as in a principal component analysis.

    Returns:
        mean of shape (D,), orthonormal columns of shape (D, C) and variances of shape (C,), largest first;
        C = min(components, D).
    """
    mean = mean_vector(passes)
    moment, rows = second_moment(passes, mean)
    values, directions = eigenvectors(moment, max(0, len(mean) - components), len(mean))
    return mean, directions[:, ::-1], values[::-1] / rows


def eigenvectors(symmetric: np.ndarray, first: int, end: int) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues number `first` … `end` − 1 of a symmetric matrix, smallest first, and their eigenvectors.

    A few of them cost a third of all.

    Args:
        symmetric: ndarray of shape (D, D).

    Returns:
        ndarrays of shape (end − first,) and (D, end − first), orthonormal columns.
    """
    if 4 * (end - first) > len(symmetric):
        values, directions = np.linalg.eigh(symmetric)
        return values[first:end], directions[:, first:end]
    from scipy.linalg import eigh

    values, directions = eigh(symmetric, subset_by_index=[first, end - 1], driver="evr", check_finite=False)
    return values, directions
