"""Mahalanobis distance to the nearest class."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic.dataclasses import dataclass

from farther.methods.base import RegionsLike, register
from farther.methods.parts.vectors import (
    VectorMethod,
    class_means,
    shared_covariance,
    squared_lengths,
    whitened,
    whitening,
)
from farther.registry import STRICT
from farther.tables import Regions


@register("mahalanobis")
@dataclass(config=STRICT, kw_only=True)
class Mahalanobis(VectorMethod):
    """Minus the squared Mahalanobis distance to the nearest class mean, with one covariance for all classes.

    Classes without detections are left out. Directions in which the training features do not vary are ignored
    (pseudo-inverse), so constant features and fewer regions than dimensions are no error.

    Formula:
        score = max_c − (z − μ_c)ᵀ Σ⁻¹ (z − μ_c), Σ = (1/N) Σ_c Σ_{j: y_j = c} (z_j − μ_c)(z_j − μ_c)ᵀ

    Source:
        Lee et al., "A Simple Unified Framework for Detecting Out-of-Distribution Samples and Adversarial Attacks",
        2018; FMIYC, Eq. 20 and 21.
    """

    title: ClassVar[str] = "Mahalanobis"
    needs: ClassVar[frozenset[str]] = frozenset({"features", "labels"})

    def _fit(self, regions: RegionsLike) -> None:
        passes = self._passes(regions)
        counts, means = class_means(passes, len(regions.header.classes))
        self.whitening_ = whitening(shared_covariance(passes, counts, means))
        self.mean_ = counts @ means / counts.sum()
        self.centres_ = whitened(means[counts > 0] - self.mean_, self.whitening_)

    def _score(self, regions: Regions) -> np.ndarray:
        return -self._distances(self._centred(regions))

    def _centred(self, regions: Regions) -> np.ndarray:
        """Features minus the mean of all training features, ndarray of shape (n, D)."""
        vectors = self._vectors(regions)
        vectors -= self.mean_
        return vectors

    def _distances(self, centred: np.ndarray) -> np.ndarray:
        """Squared distances to the nearest class mean, ndarray of shape (n,); what it is given is overwritten."""
        white = whitened(centred, self.whitening_)
        to_centres = squared_lengths(self.centres_) - 2 * (white @ self.centres_.T)
        return np.maximum(squared_lengths(white) + to_centres.min(axis=1), 0.0)
