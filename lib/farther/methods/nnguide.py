"""Nearest-neighbour guidance of the energy."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import PositiveInt

from farther.methods.arrays import Array, as_float32, normalised
from farther.methods.base import FitError, Method, Publication, RegionsLike, count_rows, register
from farther.methods.logits import Background, energy
from farther.methods.neighbours import largest_products
from farther.methods.rows import Rows


@register("nnguide")
class NNGuide(Method):
    """The energy times the mean similarity to the most similar training regions.

    Similarities are weighted by the energies of the training regions.

    The paper stores a random share of the training set (1% of ImageNet), as `fit.max_regions` in
    params.yaml does.

    Formula:
        score = E · (1/k) Σ_{i in the k largest} E_i u · u_i, u = h / ‖h‖, E = log Σ_c exp(z_c)

    Args:
        k: Number of training regions that guide.
        background: "drop" leaves the background logit out, "keep" counts it as one more class.

    Attributes:
        bank_: E_i u_i, ndarray of shape (M, D), float32.

    References:
        Park et al., "Nearest Neighbor Guidance for Out-of-Distribution Detection", 2023,
        arXiv:2309.14888. Code: https://github.com/roomo7time/nnguide

    Example:
        >>> from farther.methods import create
        >>> from farther.methods.examples import toy_regions
        >>> train = toy_regions(features=[[3.0, 0.0]], logits=[[0.0, 0.0]])  # energy log 2
        >>> create("nnguide", k=1).fit(train).score(train).round(4)  # (log 2)²
        array([0.4805])
    """

    publication: ClassVar[Publication | None] = Publication(
        "Nearest Neighbor Guidance for Out-of-Distribution Detection",
        2023,
        "https://arxiv.org/abs/2309.14888",
        code="https://github.com/roomo7time/nnguide",
    )
    title: ClassVar[str] = "NNGuide"
    aliases: ClassVar[tuple[str, ...]] = ("Nearest neighbor guidance", "Nearest neighbour guidance")
    needs: ClassVar[frozenset[str]] = frozenset({"features", "logits"})
    k: PositiveInt = 10
    background: Background = "drop"

    def _fit(self, regions: RegionsLike) -> None:
        count = count_rows(regions)
        if count < self.k:
            raise FitError(f"{self.name}: {count} regions to fit on, but k is {self.k}; lower k")
        bank = []
        for block in self._blocks(regions):
            u = normalised(self._vectors(block))
            bank.append((u * energy(block, self.background)[:, None]).astype(np.float32))
        self.bank_ = np.concatenate(bank)

    def _score(self, rows: Rows) -> Array:
        u = as_float32(normalised(self._vectors(rows)))
        guidance = rows.xp.mean(largest_products(self.bank_, u, self.k, rows.dtype), axis=1)
        return guidance * rows.energy(self.background)
