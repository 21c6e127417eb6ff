"""Mahalanobis distance to the nearest class."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from farther.methods.arrays import Array, at_least, namespace, squared_norms, whitened
from farther.methods.base import Annotation, Labelled, Method, Publication, RegionsLike, register
from farther.methods.linear_algebra import class_means, scatter_matrix, whitening
from farther.methods.publications import MDS
from farther.methods.rows import Rows


@register("mahalanobis")
class Mahalanobis(Method):
    """Minus the squared Mahalanobis distance to the nearest class mean.

    One covariance is shared by all classes.

    Classes without detections are left out. Directions in which the training features do not vary
    are ignored (pseudo-inverse), so constant features and fewer regions than dimensions are not an
    error.

    Formula:
        score = max_c − (h − μ_c)ᵀ Σ⁻¹ (h − μ_c), Σ = (1/N) Σ_c Σ_{i: y_i = c} (h_i − μ_c)(h_i −
        μ_c)ᵀ, y the predicted class, with `fit.labels: annotated` the annotated one

    Args:
        layer: Read the column `latent.<layer>`, which the detector's parameter `latents` stores, in
            place of features; "latent" is the column of that name.

    Attributes:
        mean_: Mean of all training features, ndarray of shape (D,).
        whitening_: A with A Aᵀ = Σ⁻¹, ndarray of shape (D, r).
        centres_: Whitened class means (μ_c − mean) A, ndarray of shape (C, r).

    References:
        Lee et al., "A Simple Unified Framework for Detecting Out-of-Distribution Samples and
        Adversarial Attacks", 2018, arXiv:1807.03888. Code:
        https://github.com/pokaxpoka/deep_Mahalanobis_detector

        FMIYC, Eq. 20 and 21.

    Example:
        >>> from farther.methods import create
        >>> from farther.methods.examples import toy_regions
        >>> train = toy_regions(
        ...     features=[[-1.0, 0.0], [1.0, 0.0], [0.0, 2.0], [0.0, -2.0]], label=[0, 0, 0, 0]
        ... )
        >>> mahalanobis = create("mahalanobis").fit(train)
        >>> mahalanobis.score(toy_regions(features=[[0.0, 0.0], [1.0, 0.0]])).round(9)  # variance ½
        array([-0., -2.])
    """

    publication: ClassVar[Publication | None] = MDS
    title: ClassVar[str] = "Mahalanobis"
    aliases: ClassVar[tuple[str, ...]] = ("MDS", "MD", "Mahalanobis distance")
    needs: ClassVar[frozenset[str]] = frozenset({"features", "labels"})
    annotation: ClassVar[Annotation] = "class"
    layer: str | None = None

    def _fit(self, regions: RegionsLike) -> None:
        self._fit_gaussians(regions.header.classes, self._pass(regions), self._pass(regions))

    def _fit_gaussians(self, classes: tuple[str, ...], first: Labelled, second: Labelled) -> None:
        """Fits to two passes over vectors, which may be overwritten, with their classes."""
        counts, means = class_means(first, len(classes))
        scatter = scatter_matrix(np.subtract(h, means[y], out=h) for h, y in second)
        self.whitening_ = whitening(scatter / counts.sum())
        self.mean_ = counts @ means / counts.sum()
        self.centres_ = whitened(means[counts > 0] - self.mean_, self.whitening_)

    def _score(self, rows: Rows) -> Array:
        h = self._vectors(rows)
        h -= self.mean_
        return -self._distances(h)

    def _distances(self, centred: Array) -> Array:
        """See `squared_distances`."""
        return squared_distances(centred, self.whitening_, self.centres_)


def squared_distances(centred: Array, whitening: Array, centres: Array) -> Array:
    """Squared Mahalanobis distance to the nearest class mean: min_c (h − μ_c)ᵀ Σ⁻¹ (h − μ_c).

    Args:
        centred: h − mean, shape (n, D): overwritten by NumPy.
        whitening: A with A Aᵀ = Σ⁺, shape (D, r).
        centres: Whitened class means (μ_c − mean) A, shape (C, r).

    Returns:
        Shape (n,).
    """
    white = whitened(centred, whitening)
    to_centres = squared_norms(centres) - 2 * (white @ centres.T)
    return at_least(squared_norms(white) + namespace(white).min(to_centres, axis=1), 0.0)
