"""One-class support vector machine on principal components of the features."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from farther.methods.arrays import Array, at_least, squared_norms
from farther.methods.base import FitError, Method, Publication, RegionsLike, register
from farther.methods.linear_algebra import principal_components
from farther.methods.rows import Rows

# Imported in functions: scikit-learn, which takes a second.


@register("oodl")
class OODL(Method):
    """The decision function of a one-class SVM on principal components of the features.

    The machine is scikit-learn's. Its decision function is a sum of Gaussian kernels, which is
    stored as arrays and evaluated here. Fitting takes time with the square of the regions, so at
    most `sample` of them are drawn for it.

    The paper gives no γ. scikit-learn's, the default, makes the kernels as wide as all training
    regions together, so that the score orders regions by their distance from the mean. Rectified
    features of unknown objects are weaker than those of known ones, and therefore nearer to that
    mean: on the demo unknown objects get the higher scores, AUROC 0.25 to 0.37, and other ν or
    numbers of components change little. Narrower kernels resolve the classes: ten times that γ,
    about 0.11 there, gives 0.77 to 0.85. These values are of the demo's test splits: they explain
    the default and must not guide a choice. Choose γ on validation data.

    Formula:
        score = Σ_i a_i exp(−γ ‖v − v_i‖²) − ρ, v = Pᵀ (h − mean)

    Args:
        components: Number of principal components, at most the number of features.
        nu: ν, the share of training regions that may lie outside.
        gamma: γ; None takes 1 / (components · variance), scikit-learn's "scale".
        kernel: "rbf" keeps the support vectors; "nystroem" approximates the kernel by `landmarks`
            regions, in time linear in the regions.
        landmarks: See `kernel`.
        sample: Number of regions to fit to, at most.
        seed: Seed of the draws.
        layer: Read the column `latent.<layer>`, which the detector's parameter `latents` stores, in
            place of features; "latent" is the column of that name. The paper tries the layers on
            OOD data and takes the one with the smallest detection error; `search` with `layer` and
            `nu` in its grid does so by AUROC, on a validation split, as the profiles realistic-*
            do.

    Attributes:
        mean_: Mean of the features, ndarray of shape (D,).
        components_: P, ndarray of shape (D, components).
        gamma_: γ.
        vectors_: Support vectors or landmarks v_i, ndarray of shape (M, components).
        weights_: a, ndarray of shape (M,).
        offset_: ρ.

    References:
        Abdelzad et al., "Detecting Out-of-Distribution Inputs in Deep Neural Networks Using an
        Early-Layer Output", 2019, arXiv:1910.10307.

        "OODL" of Recalcati et al., "Toward a Realistic Benchmark for Out-of-Distribution
        Detection", 2023, arXiv:2404.10474.

    Example:
        >>> from farther.methods import create
        >>> from farther.methods.examples import toy_regions
        >>> train = toy_regions(features=[[float(i % 5), float(i // 5)] for i in range(25)])
        >>> oodl = create("oodl", components=2).fit(train)
        >>> near, far = oodl.score(toy_regions(features=[[2.0, 2.0], [9.0, 9.0]]))
        >>> bool(near > far)
        True
    """

    publication: ClassVar[Publication | None] = Publication(
        "Detecting Out-of-Distribution Inputs in Deep Neural Networks Using an Early-Layer Output",
        2019,
        "https://arxiv.org/abs/1910.10307",
    )
    title: ClassVar[str] = "OODL"
    needs: ClassVar[frozenset[str]] = frozenset({"features"})
    components: PositiveInt = 64
    nu: Annotated[float, Field(gt=0, lt=1)] = 0.1
    gamma: PositiveFloat | None = None
    kernel: Literal["rbf", "nystroem"] = "rbf"
    landmarks: PositiveInt = 256
    sample: PositiveInt = 5000
    seed: NonNegativeInt = 0
    layer: str | None = None

    def _fit(self, regions: RegionsLike) -> None:

        def blocks() -> Iterator[np.ndarray]:
            return (h for h, _ in self._pass(regions))

        self.mean_, self.components_, _ = principal_components(blocks, self.components)
        projected = []
        for block in self._drawn(regions, self.sample, self.seed):
            projected.append((self._vectors(block) - self.mean_) @ self.components_)
        vectors = np.concatenate(projected)
        variance = float(vectors.var())
        if variance == 0:
            raise FitError(f"{self.name}: the features of all regions are the same")
        self.gamma_ = 1 / (vectors.shape[1] * variance)
        if self.gamma is not None:
            self.gamma_ = self.gamma
        try:
            if self.kernel == "rbf":
                self._fit_support_vectors(vectors)
            else:
                self._fit_landmarks(vectors)
        except ValueError as error:
            raise FitError(
                f"{self.name}: scikit-learn cannot fit {len(vectors)} regions: {error}"
            ) from None

    def _fit_support_vectors(self, vectors: np.ndarray) -> None:
        from sklearn.svm import OneClassSVM

        machine = OneClassSVM(nu=self.nu, gamma=self.gamma_).fit(vectors)
        self.vectors_ = machine.support_vectors_
        self.weights_ = machine.dual_coef_[0]
        self.offset_ = -float(machine.intercept_[0])

    def _fit_landmarks(self, vectors: np.ndarray) -> None:
        from sklearn.kernel_approximation import Nystroem
        from sklearn.linear_model import SGDOneClassSVM

        count = min(self.landmarks, len(vectors))
        approximation = Nystroem(gamma=self.gamma_, n_components=count, random_state=self.seed).fit(
            vectors
        )
        machine = SGDOneClassSVM(nu=self.nu, random_state=self.seed).fit(
            approximation.transform(vectors)
        )
        self.vectors_ = approximation.components_
        self.weights_ = approximation.normalization_.T @ machine.coef_
        self.offset_ = float(machine.offset_[0])

    def _score(self, rows: Rows) -> Array:
        v = (self._vectors(rows) - self.mean_) @ self.components_
        squares = squared_norms(v)[:, None] + squared_norms(self.vectors_)
        distances = at_least(squares - 2 * v @ self.vectors_.T, 0.0)
        return rows.xp.exp(-self.gamma_ * distances) @ self.weights_ - self.offset_
