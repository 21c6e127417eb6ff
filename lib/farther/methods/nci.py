"""Neural collapse inspired detector."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import NonNegativeFloat

from farther.methods.arrays import Array, at_least, row_products, row_sums, squared_norms
from farther.methods.base import Method, Publication, RegionsLike, register
from farther.methods.logits import Background
from farther.methods.rows import Rows

#: Lower bound of the distance to the training mean.
SMALLEST = 1e-8


@register("nci")
class NCI(Method):
    """How far the weights of the predicted class point towards the region, plus its size.

    Features of known classes gather around the weights of their class once the training mean is
    subtracted, and are far from the origin. The paper chooses α for each network.

    Formula:
        score = w_y · (h − μ) / ‖h − μ‖ + α ‖h‖₁, y = argmax_c z_c, μ the mean training feature

    Args:
        alpha: α, at least 0; 0.0001 is OpenOOD's default.
        background: "drop" leaves the background logit out, "keep" counts it as one more class.

    Attributes:
        mean_: μ, ndarray of shape (D,).

    References:
        Liu and Qin, "Detecting Out-of-Distribution Through the Lens of Neural Collapse", 2025,
        arXiv:2311.01479. Code: https://github.com/litianliu/NCI-OOD

    Example:
        >>> from farther.methods import create
        >>> from farther.methods.examples import toy_regions
        >>> nci = create("nci", alpha=0.1).fit(toy_regions(features=[[0.0, 0.0]]))
        >>> nci.score(toy_regions(features=[[4.0, 3.0]])).round(4)  # 4 / 5 + 0.1 · 7
        array([1.5])
    """

    publication: ClassVar[Publication | None] = Publication(
        "Detecting Out-of-Distribution Through the Lens of Neural Collapse",
        2025,
        "https://arxiv.org/abs/2311.01479",
        code="https://github.com/litianliu/NCI-OOD",
    )
    title: ClassVar[str] = "NCI"
    aliases: ClassVar[tuple[str, ...]] = ("Neural collapse inspired detector", "NC-OOD")
    needs: ClassVar[frozenset[str]] = frozenset({"features", "logits", "last_layer"})
    alpha: NonNegativeFloat = 0.0001
    background: Background = "drop"

    def _fit(self, regions: RegionsLike) -> None:
        sums = np.zeros(())
        count = 0
        for features in self._features(regions):
            sums = sums + features.sum(axis=0, dtype=np.float64)  # half the time of a copy's sum
            count += len(features)
        self.mean_ = sums / count

    def _score(self, rows: Rows) -> Array:
        xp = rows.xp
        weight, _ = rows.last_layer(self.background)
        of_class = weight[xp.argmax(rows.logits(self.background), axis=1)]
        h = self._vectors(rows)
        size = row_sums(xp.abs(h))
        h -= self.mean_
        proximity = row_products(h, of_class) / at_least(squared_norms(h) ** 0.5, SMALLEST)
        return proximity + rows.number(self.alpha) * size
