"""Distance to the decision boundaries."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from farther.methods.arrays import Array, at_least, squared_norms
from farther.methods.base import FitError, Method, Publication, RegionsLike, register
from farther.methods.linear_algebra import mean_vector
from farther.methods.logits import Background, last_layer
from farther.methods.rows import Rows

#: Lower bound of the distance to the training mean.
SMALLEST = 1e-8


@register("fdbd")
class FDBD(Method):
    """The mean distance to the decision boundaries with the other classes.

    It is relative to the distance to the training mean.

    The predicted class is the one with the largest logit. A boundary between two classes with the
    same weights does not count.

    Formula:
        score = 1 / (C − 1) Σ_{c ≠ y} (z_y − z_c) / ‖w_y − w_c‖ / ‖h − μ‖, y = argmax_c z_c, μ the
        mean training feature

    Args:
        background: "drop" leaves the background logit out, "keep" counts it as one more class.

    Attributes:
        mean_: μ, ndarray of shape (D,).
        inverse_gaps_: 1 / ‖w_k − w_c‖, 0 where they are equal, ndarray of shape (C, C).

    References:
        Liu and Qin, "Fast Decision Boundary based Out-of-Distribution Detector", 2024,
        arXiv:2312.11536. Code: https://github.com/litianliu/fDBD-OOD

    Example:
        >>> from farther.methods import create
        >>> from farther.methods.examples import toy_regions
        >>> fdbd = create("fdbd").fit(
        ...     toy_regions(features=[[0.0, 0.0]])
        ... )  # mean 0, boundary: the diagonal
        >>> fdbd.score(toy_regions(features=[[3.0, 0.0]])).round(4)  # (3 / √2) / 3
        array([0.7071])
    """

    publication: ClassVar[Publication | None] = Publication(
        "Fast Decision Boundary based Out-of-Distribution Detector",
        2024,
        "https://arxiv.org/abs/2312.11536",
        code="https://github.com/litianliu/fDBD-OOD",
    )
    title: ClassVar[str] = "fDBD"
    aliases: ClassVar[tuple[str, ...]] = ("fast Decision Boundary based Detector",)
    needs: ClassVar[frozenset[str]] = frozenset({"features", "logits", "last_layer"})
    background: Background = "drop"

    def _fit(self, regions: RegionsLike) -> None:
        weight, _ = last_layer(regions, self.background)
        if len(weight) < 2:
            raise FitError(f"{self.name}: one class has no decision boundary")
        self.mean_, _ = mean_vector(h for h, _ in self._pass(regions))
        gaps = np.stack([np.linalg.norm(weight - row, axis=1) for row in weight])
        self.inverse_gaps_ = np.divide(1.0, gaps, out=np.zeros_like(gaps), where=gaps > 0)

    def _score(self, rows: Rows) -> Array:
        z = rows.logits(self.background)
        xp = rows.xp
        distances = (xp.max(z, axis=1, keepdims=True) - z) * self.inverse_gaps_[
            xp.argmax(z, axis=1)
        ]
        h = self._vectors(rows)
        h -= self.mean_
        to_mean = at_least(xp.sqrt(squared_norms(h)), SMALLEST)
        return xp.sum(distances, axis=1) / ((len(self.inverse_gaps_) - 1) * to_mean)
