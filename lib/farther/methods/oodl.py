"""One-class support vector machine on principal components of the features."""

from __future__ import annotations

import importlib.util
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt
from pydantic.dataclasses import dataclass

from farther.methods.base import FitError, RegionsLike, count_rows, register
from farther.methods.parts.subspaces import principal_components
from farther.methods.parts.vectors import VectorMethod
from farther.registry import STRICT
from farther.tables import Regions


@register("oodl")
@dataclass(config=STRICT, kw_only=True)
class OODL(VectorMethod):
    """How far inside the boundary of a one-class support vector machine the feature's principal components are.

    The machine is scikit-learn's. What it learns is a sum of Gaussian bumps, which is stored as arrays and evaluated
    here. Its fitting takes time with the square of the regions, so at most `sample` of them are drawn for it.

    The source gives no γ. scikit-learn's, the default, makes the bumps as wide as all training regions together, so
    that the score orders regions by their distance from the mean. Rectified features of unknown objects are weaker than
    those of known ones, and therefore nearer to that mean: on the demo unknown objects get the higher scores, AUROC
    0.25 to 0.37, and other ν or numbers of components change little. Narrower bumps look at the classes: ten times
    that γ, about 0.11 there, gives 0.77 to 0.85. These figures are of the demo's test splits: they explain the default
    and are no ground to choose by. Choose γ on validation data.

    Formula:
        score = Σ_i a_i exp(−γ ‖v − v_i‖²) − ρ, v = Pᵀ (z − mean)

    Source:
        Abdelzad et al., "Detecting Out-of-Distribution Inputs in Deep Neural Networks Using an Early-Layer Output",
        2019; the realistic benchmark's "OODL".

    Args:
        components: Principal components kept, at most as many as there are features.
        nu: ν, the share of training regions that may lie outside.
        gamma: γ; None takes 1 / (components · variance), scikit-learn's "scale".
        kernel: "rbf" keeps the support vectors; "nystroem" approximates the kernel by `landmarks` regions, and its time
            grows with the regions only.
        landmarks: See `kernel`.
        sample: At most so many regions are learned from.
        seed: Of the draws.
    """

    title: ClassVar[str] = "OODL"
    components: PositiveInt = 64
    nu: Annotated[float, Field(gt=0, lt=1)] = 0.1
    gamma: PositiveFloat | None = None
    kernel: Literal["rbf", "nystroem"] = "rbf"
    landmarks: PositiveInt = 256
    sample: PositiveInt = 5000
    seed: NonNegativeInt = 0
    needs: ClassVar[frozenset[str]] = frozenset({"features"})

    def _fit(self, regions: RegionsLike) -> None:
        if importlib.util.find_spec("sklearn") is None:
            raise FitError(f"{self.name} needs scikit-learn: pip install 'farther[fast]'")
        self.mean_, self.components_, _ = principal_components(self._passes(regions), self.components)
        vectors = self._sample(regions)
        variance = float(vectors.var())
        if variance == 0:
            raise FitError(f"{self.name}: the features of all regions are the same")
        self.gamma_ = self.gamma if self.gamma is not None else 1 / (vectors.shape[1] * variance)
        try:
            (self._fit_support_vectors if self.kernel == "rbf" else self._fit_landmarks)(vectors)
        except ValueError as error:
            raise FitError(f"{self.name}: scikit-learn cannot fit {len(vectors)} regions: {error}") from None

    def _sample(self, regions: RegionsLike) -> np.ndarray:
        count = count_rows(regions)
        drawn = np.random.default_rng(self.seed).permutation(count)[: self.sample]
        chosen, first = np.isin(np.arange(count), drawn), 0
        parts = []
        for batch in self._batches(regions):
            part = batch[chosen[first : first + len(batch)]]
            parts.append((self._vectors(part) - self.mean_) @ self.components_)
            first += len(batch)
        return np.concatenate(parts)

    def _fit_support_vectors(self, vectors: np.ndarray) -> None:
        from sklearn.svm import OneClassSVM

        machine = OneClassSVM(nu=self.nu, gamma=self.gamma_).fit(vectors)
        self.vectors_, self.weights_ = machine.support_vectors_, machine.dual_coef_[0]
        self.offset_ = -float(machine.intercept_[0])

    def _fit_landmarks(self, vectors: np.ndarray) -> None:
        from sklearn.kernel_approximation import Nystroem
        from sklearn.linear_model import SGDOneClassSVM

        count = min(self.landmarks, len(vectors))
        approximation = Nystroem(gamma=self.gamma_, n_components=count, random_state=self.seed).fit(vectors)
        machine = SGDOneClassSVM(nu=self.nu, random_state=self.seed).fit(approximation.transform(vectors))
        self.vectors_ = approximation.components_
        self.weights_ = approximation.normalization_.T @ machine.coef_
        self.offset_ = float(machine.offset_[0])

    def _score(self, regions: Regions) -> np.ndarray:
        vectors = (self._vectors(regions) - self.mean_) @ self.components_
        squares = np.einsum("nd,nd->n", vectors, vectors)[:, None] + np.einsum("md,md->m", self.vectors_, self.vectors_)
        distances = np.maximum(squares - 2 * vectors @ self.vectors_.T, 0.0)
        return np.exp(-self.gamma_ * distances) @ self.weights_ - self.offset_
