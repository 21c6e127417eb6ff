"""Concentration-free outlier factor."""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from farther.methods.arrays import Array, normalised, squared_norms
from farther.methods.base import FitError, Method, Publication, RegionsLike, count_rows, register
from farther.methods.neighbours import parts_of, row_blocks
from farther.methods.rows import Rows

#: What rounding may add to the squared distance of two vectors of length 1.
ROUNDING = 1e-9


@register("cf_ood")
class CFOOD(Method):
    """How large neighbourhoods must be until enough training regions have the region in theirs.

    A region of a dense place is soon a neighbour of others, one far from all of them late or never:
    reverse nearest neighbours, which stay meaningful where all distances are alike. Distances are
    between features of length 1.

    A share of the training set suffices, says the paper: that is `fit.max_regions` in params.yaml.
    Sizes of neighbourhoods are OpenOOD's: 0.1% to 10% in steps of 0.1%, to 50% in steps of 0.5%, to
    99% in steps of 1%.

    Formula:
        score = −min {κ: the share of training regions i with ‖u − u_i‖ ≤ r_i(κ) is at least ϱ}, and
        −1 where there is none; u = h / ‖h‖, r_i(κ) the distance of i to its κ N-th neighbour of N

    Args:
        share: ϱ, above 0.

    Attributes:
        stored_: u_i, ndarray of shape (N, D).
        sizes_: κ, and 1, ndarray of shape (K + 1,).
        radii_: r_i(κ)², ndarray of shape (K, N).

    References:
        Angiulli et al., "CF-OOD: Concentration-Free Density Estimation for Reliable
        Out-of-Distribution Detection", 2026, https://iris.unical.it/handle/20.500.11770/399817.
        Code of OpenOOD: https://github.com/Jingkang50/OpenOOD

    Example:
        >>> from farther.methods import create
        >>> from farther.methods.examples import toy_regions
        >>> train = toy_regions(features=[[9.0, 0.0], [9.0, 1.0], [9.0, 2.0], [9.0, 3.0]])
        >>> cf_ood = create("cf_ood", share=0.5).fit(train)
        >>> cf_ood.sizes_  # the nearest, two nearest and three nearest of four, and all
        array([0.001, 0.5  , 0.75 , 1.   ])
        >>> cf_ood.score(toy_regions(features=[[9.0, 1.5], [0.0, 1.0]]))
        array([-0.001, -1.   ])
    """

    publication: ClassVar[Publication | None] = Publication(
        "CF-OOD: Concentration-Free Density Estimation for Reliable Out-of-Distribution Detection",
        2026,
        "https://iris.unical.it/handle/20.500.11770/399817",
    )
    title: ClassVar[str] = "CF-OOD"
    aliases: ClassVar[tuple[str, ...]] = ("CFOOD", "Concentration-free outlier factor", "CFOF")
    needs: ClassVar[frozenset[str]] = frozenset({"features"})
    only_float64: ClassVar[str] = "float32 would change which of two distances is the larger"
    share: Annotated[float, Field(gt=0, le=1)] = 0.01

    def _fit(self, regions: RegionsLike) -> None:
        count = count_rows(regions)
        if count < 2:
            raise FitError(f"{self.name}: one region has no neighbours")
        self.stored_ = np.concatenate([normalised(h) for h, _ in self._pass(regions)])
        sizes, ranks = neighbourhoods(count)
        self.sizes_ = np.append(sizes, 1.0)
        self.radii_ = np.empty((len(ranks), count))
        for part in row_blocks(count, count):
            distances = self._distances(self.stored_[part])
            rows = np.arange(len(distances))
            distances[rows, part.start + rows] = -1.0  # a region is not its own neighbour
            distances.sort(axis=1)
            self.radii_[:, part] = distances[:, ranks].T + ROUNDING

    def _distances(self, u: Array) -> Array:
        """‖u − u_i‖² of vectors and training regions, shape (n, N)."""
        distances = squared_norms(u)[:, None] + squared_norms(self.stored_)
        distances -= 2 * (u @ self.stored_.T)
        return distances

    def _score(self, rows: Rows) -> Array:
        u = normalised(self._vectors(rows))
        found = []
        for part in parts_of(u, len(self.stored_)):
            found.append(self.sizes_[self._first_size(rows, self._distances(u[part]))])
        return -rows.xp.concat(found, axis=0)

    def _first_size(self, rows: Rows, distances: Array) -> Array:
        """Place in `sizes_` of each row's smallest κ, by bisection, shape (n,)."""
        xp = rows.xp
        count = len(self.radii_)
        low = xp.zeros_like(distances[:, 0], dtype=xp.int64)
        high = low + count
        for _ in range(count.bit_length()):
            middle = (low + high) // 2
            radii = self.radii_[xp.clip(middle, None, count - 1)]
            share = xp.mean(xp.astype(distances <= radii, rows.dtype), axis=1)
            is_enough = (share >= self.share - ROUNDING) | (middle >= count)
            high = xp.where(is_enough, middle, high)
            low = xp.where(is_enough, low, middle + 1)
        return low


def neighbourhoods(count: int) -> tuple[np.ndarray, np.ndarray]:
    """OpenOOD's sizes of neighbourhoods, and which neighbour is the last of each.

    Args:
        count: Number of regions, at least 2.

    Returns:
        Shares of the regions, and ranks of neighbours, 1 for the nearest: ndarrays of shape (K,).
    """
    shares = np.concatenate(
        [np.linspace(0.001, 0.1, 100), np.linspace(0.105, 0.5, 81), np.linspace(0.51, 0.99, 49)]
    )
    ranks = (shares * count - 1).astype(int) + 1
    is_new = np.concatenate([[True], ranks[1:] > ranks[:-1]])
    return shares[is_new], ranks[is_new]
