"""Simplified Hopfield energy."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from farther.methods.arrays import Array, row_products
from farther.methods.base import Annotation, Method, Publication, RegionsLike, register
from farther.methods.linear_algebra import class_means
from farther.methods.rows import Rows


@register("she")
class SHE(Method):
    """The inner product of the feature with the mean feature of its predicted class.

    The paper takes the means over correctly classified examples, as `fit.labels: annotated` does;
    without it they are over all regions of a predicted class. A class without regions gets the mean
    of all.

    Formula:
        score = h · μ_y, y the predicted class

    Attributes:
        patterns_: μ_c, ndarray of shape (K, D).

    References:
        Zhang et al., "Out-of-Distribution Detection based on In-Distribution Data Patterns
        Memorization with Modern Hopfield Energy", 2023, https://openreview.net/forum?id=KkazG4lgKL

    Example:
        >>> from farther.methods import create
        >>> from farther.methods.examples import toy_regions
        >>> train = toy_regions(features=[[2.0, 0.0], [4.0, 0.0], [0.0, 1.0]], label=[0, 0, 1])
        >>> create("she").fit(train).score(
        ...     toy_regions(features=[[1.0, 1.0], [1.0, 1.0]], label=[0, 1])
        ... )
        array([3., 1.])
    """

    publication: ClassVar[Publication | None] = Publication(
        "Out-of-Distribution Detection based on In-Distribution Data Patterns Memorization "
        "with Modern Hopfield Energy",
        2023,
        "https://openreview.net/forum?id=KkazG4lgKL",
    )
    title: ClassVar[str] = "SHE"
    aliases: ClassVar[tuple[str, ...]] = ("Simplified Hopfield energy",)
    needs: ClassVar[frozenset[str]] = frozenset({"features", "labels"})
    annotation: ClassVar[Annotation] = "correct"

    def _fit(self, regions: RegionsLike) -> None:
        counts, means = class_means(self._pass(regions), len(regions.header.classes))
        self.patterns_ = np.where(counts[:, None] > 0, means, counts @ means / counts.sum())

    def _score(self, rows: Rows) -> Array:
        return row_products(self._vectors(rows), self.patterns_[rows.label])
