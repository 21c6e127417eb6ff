"""Strength of a region's relations to the training regions."""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field, PositiveFloat

from farther.methods.arrays import Array, as_float32, cast, normalised, softmax
from farther.methods.base import Method, Publication, RegionsLike, count_rows, register
from farther.methods.logits import Background
from farther.methods.neighbours import parts_of
from farther.methods.rows import Rows

#: Relations that differ from the threshold by no more than this share of it are computed again in
#: float64: rounding must not decide whether they count.
NEAR = 1e-4


@register("relation")
class Relation(Method):
    """The sum of a region's relations to all training regions.

    Regions of the same probabilities and similar features are related.

    The paper stores a random share of the training set, as `fit.max_regions` in params.yaml does;
    the sum grows with it. Products are computed in float32, those that are near the threshold in
    float64.

    Formula:
        score = Σ_i r_i^t over the training regions i with r_i > threshold, r_i = max(u · u_i, 0) ·
        (p · p_i), u = h / ‖h‖, p = softmax(z)

    Args:
        power: t, above 0.
        threshold: Relations that are not larger do not count.
        background: "drop" leaves the background logit out, "keep" counts it as one more class.

    Attributes:
        stored_: u_i of the training regions, ndarray of shape (M, D), float32.
        probabilities_: p_i of the training regions, ndarray of shape (M, C), float32.

    References:
        Kim et al., "Neural Relation Graph: A Unified Framework for Identifying Label Noise and
        Outlier Data", 2023, arXiv:2301.12321. Code:
        https://github.com/snu-mllab/Neural-Relation-Graph

    Example:
        >>> from farther.methods import create
        >>> from farther.methods.examples import toy_regions
        >>> train = toy_regions(features=[[1.0, 0.0], [0.0, 1.0]], logits=[[9.0, 9.0], [9.0, 9.0]])
        >>> create("relation").fit(train).score(train[:1])  # 1 · ½ + 0 · ½
        array([0.5])
    """

    publication: ClassVar[Publication | None] = Publication(
        "Neural Relation Graph: A Unified Framework for Identifying Label Noise and Outlier Data",
        2023,
        "https://arxiv.org/abs/2301.12321",
        code="https://github.com/snu-mllab/Neural-Relation-Graph",
    )
    title: ClassVar[str] = "Relation"
    needs: ClassVar[frozenset[str]] = frozenset({"features", "logits"})
    power: PositiveFloat = 1.0
    threshold: Annotated[float, Field(ge=0, lt=1)] = 0.03
    background: Background = "drop"

    def _fit(self, regions: RegionsLike) -> None:
        count = count_rows(regions)
        filled = 0
        for block in self._blocks(regions):
            u, p = self._node(Rows.of(block))
            if filled == 0:
                # Allocated once: two copies of the largest array here may not fit into memory.
                self.stored_ = np.empty((count, u.shape[1]), np.float32)
                self.probabilities_ = np.empty((count, p.shape[1]), np.float32)
            self.stored_[filled : filled + len(u)] = u
            self.probabilities_[filled : filled + len(u)] = p
            filled += len(u)

    def _node(self, rows: Rows) -> tuple[Array, Array]:
        """u of shape (n, D) and p of shape (n, C), float32."""
        u = normalised(self._vectors(rows))
        p = softmax(rows.logits(self.background))
        return as_float32(u), as_float32(p)

    def _score(self, rows: Rows) -> Array:
        u, p = self._node(rows)
        scores = []
        for part in parts_of(u, len(self.stored_)):
            related = self._relations(u[part], p[part], rows)
            related *= related > rows.number(self.threshold)  # negative cosines become 0, too
            if self.power != 1:
                related = related ** rows.number(self.power)
            scores.append(rows.xp.sum(related, axis=1, dtype=rows.dtype))
        return rows.xp.concat(scores)

    def _relations(self, u: Array, p: Array, rows: Rows) -> Array:
        """r of nodes and all stored ones, shape (n, M).

        Of arrays in float32, but for those near the threshold.
        """
        if not isinstance(u, np.ndarray):
            cosines = cast(u, rows.dtype) @ cast(self.stored_, rows.dtype).T
            return cosines * (cast(p, rows.dtype) @ cast(self.probabilities_, rows.dtype).T)
        related = u @ self.stored_.T
        related *= p @ self.probabilities_.T
        is_near = np.abs(related - self.threshold) < NEAR * self.threshold
        nodes, stored = np.nonzero(is_near)
        related[nodes, stored] = self._exact(u[nodes], p[nodes], stored)
        return related

    def _exact(self, u: np.ndarray, p: np.ndarray, stored: np.ndarray) -> np.ndarray:
        """r of nodes and as many stored ones, ndarray of shape (n,), float64."""
        cosines = np.vecdot(u.astype(np.float64), self.stored_[stored])
        return cosines * np.vecdot(p.astype(np.float64), self.probabilities_[stored])
