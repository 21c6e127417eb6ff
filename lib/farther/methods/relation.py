"""Strength of a region's relations to the training regions."""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field, PositiveFloat

from farther.methods.base import Method, RegionsLike, count_rows, register
from farther.methods.linear_algebra import normalised
from farther.methods.logits import Background, class_logits, softmax
from farther.methods.neighbours import row_blocks
from farther.tables import Regions

#: Relations that differ from the threshold by no more than this share of it are computed again in float64: rounding
#: must not decide whether they count.
NEAR = 1e-4


@register("relation")
class Relation(Method):
    """The sum of a region's relations to all training regions: those of the same probabilities and similar features.

    The paper stores a random share of the training set, as `fit.max_regions` in params.yaml does; the sum grows with
    it. Products are computed in float32, those that are near the threshold in float64.

    Formula:
        score = Σ_i r_i^t over the training regions i with r_i > threshold, r_i = max(u · u_i, 0) · (p · p_i),
        u = h / ‖h‖, p = softmax(z)

    Args:
        power: t, above 0.
        threshold: Relations that are not larger do not count.
        background: "drop" leaves the background logit out, "keep" counts it as one more class.

    Attributes:
        stored_: u_i of the training regions, ndarray of shape (M, D), float32.
        probabilities_: p_i of the training regions, ndarray of shape (M, C), float32.

    References:
        Kim et al., "Neural Relation Graph: A Unified Framework for Identifying Label Noise and Outlier Data", 2023,
        arXiv:2301.12321. Code: https://github.com/snu-mllab/Neural-Relation-Graph

    Example:
        >>> from farther.methods import create
        >>> from farther.methods.examples import toy_regions
        >>> train = toy_regions(features=[[1.0, 0.0], [0.0, 1.0]], logits=[[9.0, 9.0], [9.0, 9.0]])
        >>> create("relation").fit(train).score(train[:1])  # 1 · ½ + 0 · ½
        array([0.5])
    """

    title: ClassVar[str] = "Relation"
    needs: ClassVar[frozenset[str]] = frozenset({"features", "logits"})
    power: PositiveFloat = 1.0
    threshold: Annotated[float, Field(ge=0, lt=1)] = 0.03
    background: Background = "drop"

    def _fit(self, regions: RegionsLike) -> None:
        count, filled = count_rows(regions), 0
        for block in self._blocks(regions):
            u, p = self._node(block)
            if filled == 0:  # allocated once: two copies of the largest array here may not fit into memory
                self.stored_ = np.empty((count, u.shape[1]), np.float32)
                self.probabilities_ = np.empty((count, p.shape[1]), np.float32)
            self.stored_[filled : filled + len(u)], self.probabilities_[filled : filled + len(u)] = u, p
            filled += len(u)

    def _node(self, regions: Regions) -> tuple[np.ndarray, np.ndarray]:
        """u of shape (n, D) and p of shape (n, C), float32."""
        u, p = normalised(self._vectors(regions)), softmax(class_logits(regions, self.background))
        return u.astype(np.float32), p.astype(np.float32)

    def _score(self, regions: Regions) -> np.ndarray:
        u, p = self._node(regions)
        scores = np.empty(len(regions))
        for rows in row_blocks(len(u), len(self.stored_)):
            related = u[rows] @ self.stored_.T
            related *= p[rows] @ self.probabilities_.T
            near = np.nonzero(np.abs(related - self.threshold) < NEAR * self.threshold)
            related[near] = self._exact(u[rows][near[0]], p[rows][near[0]], near[1])
            related *= related > self.threshold  # negative cosines become 0, too
            scores[rows] = (related if self.power == 1 else related**self.power).sum(axis=1, dtype=np.float64)
        return scores

    def _exact(self, u: np.ndarray, p: np.ndarray, stored: np.ndarray) -> np.ndarray:
        """r of nodes and as many stored ones, ndarray of shape (n,), float64."""
        cosines = np.vecdot(u.astype(np.float64), self.stored_[stored])
        return cosines * np.vecdot(p.astype(np.float64), self.probabilities_[stored])
