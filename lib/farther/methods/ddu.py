"""Deep deterministic uncertainty: density under one Gaussian per class."""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
from pydantic import NonNegativeFloat

from farther.methods.arrays import Array, cast, log_sum_exp, lower_solved, squared_norms
from farther.methods.base import (
    Annotation,
    FitError,
    Labelled,
    Method,
    Publication,
    RegionsLike,
    register,
)
from farther.methods.gaussian_bounds import GaussianBounds
from farther.methods.linear_algebra import class_means, is_singular
from farther.methods.rows import Rows
from farther.terms import Protocol

#: Tried in this order: the published code's range.
JITTERS = [0.0, *(10.0**power for power in range(-20, 1))]

#: Rows, classes and dimensions from which on it pays to bound all densities and to compute few.
MIN_BOUNDED_ROWS = 256
MIN_BOUNDED_CLASSES = 4
MIN_BOUNDED_DIMENSIONS = 128


@register("ddu")
class DDU(Method):
    """The log density of the features under one Gaussian per class, with full covariances.

    Classes with fewer than two detections are left out. The fitted state holds a D × D matrix per
    class. The covariance of a class is singular if it has no more detections than dimensions, or if
    its features depend on each other; then the jitter on the diagonals, and with the smallest one
    the rounding, decides the scores. `singular_` names such classes, and the report shows them.

    Formula:
        score = log Σ_c π_c N(h; μ_c, Σ_c + ε I), π_c = N_c / N

    Args:
        jitter: ε; None takes the smallest of 0, 10⁻²⁰, 10⁻¹⁹ … 1 with which all covariances
            factorise. Where one is singular that is a multiple of the rounding, at least 10⁻¹⁶ of
            the variances in float64, 10⁻⁷ in float32.
        precision: Of means, covariances and their factors, "float64" or "float32"; None takes the
            protocol's.
        protocol: "paper": classes weigh by their share of the detections, covariances are divided
            by N_c, float64; "published-code": all weigh 1, covariances are divided by N_c − 1,
            float32.

    Attributes:
        means_: μ_c, ndarray of shape (C, D).
        factors_: Lower Cholesky factors L_c of Σ_c + ε I, ndarray of shape (C, D, D).
        log_weights_: log π_c, ndarray of shape (C,).
        jitter_: ε.
        singular_: Names of the classes whose covariance is singular.

    References:
        Mukhoti et al., "Deep Deterministic Uncertainty: A New Simple Baseline", 2023,
        arXiv:2102.11582. Code: https://github.com/omegafragger/DDU

        FMIYC, Eq. 22 and 23.

    Example:
        >>> from farther.methods import create
        >>> from farther.methods.examples import toy_regions
        >>> train = toy_regions(features=[[-1.0], [1.0]], label=[0, 0])  # mean 0, variance 1
        >>> create("ddu").fit(train).score(toy_regions(features=[[0.0]])).round(4)  # −½ log 2π
        array([-0.9189])
    """

    publication: ClassVar[Publication | None] = Publication(
        "Deep Deterministic Uncertainty: A New Simple Baseline",
        2023,
        "https://arxiv.org/abs/2102.11582",
        code="https://github.com/omegafragger/DDU",
    )
    title: ClassVar[str] = "DDU"
    aliases: ClassVar[tuple[str, ...]] = ("Deep deterministic uncertainty", "GMM")
    needs: ClassVar[frozenset[str]] = frozenset({"features", "labels"})
    annotation: ClassVar[Annotation] = "class"
    jitter: NonNegativeFloat | None = None
    precision: Literal["float64", "float32"] | None = None
    protocol: Protocol = "paper"

    def _fit(self, regions: RegionsLike) -> None:
        def batches() -> Labelled:
            return ((self._vectors(batch), batch.label) for batch in self._batches(regions))

        # A product per class and batch: batches, which are longer than blocks, cost less.
        self._fit_gaussians(regions.header.classes, self._pass(regions), batches())

    def _fit_gaussians(self, classes: tuple[str, ...], first: Labelled, second: Labelled) -> None:
        """Fits to two passes over vectors, which may be overwritten, with their classes."""
        self.__dict__.pop("_bounds", None)  # of what it was fitted to before
        counts, means = class_means(first, len(classes))
        fitted_classes = np.flatnonzero(counts > 1)
        if len(fitted_classes) == 0:
            raise FitError(
                f"{self.name}: no class has two detections to estimate a covariance from"
            )
        is_paper = self.protocol == "paper"
        precision = self.precision or ("float64" if is_paper else "float32")
        self.means_ = means[fitted_classes].astype(precision)
        scatter = np.zeros((len(fitted_classes), means.shape[1], means.shape[1]), precision)
        for block, labels in second:
            vectors = block.astype(precision, copy=False)
            for position, c in enumerate(fitted_classes):
                h = vectors[labels == c]
                h -= self.means_[position]
                scatter[position] += h.T @ h
        class_counts = counts[fitted_classes]
        if is_paper:
            self.log_weights_ = np.log(class_counts / counts.sum())
            degrees_of_freedom = class_counts
        else:
            self.log_weights_ = np.zeros(len(fitted_classes))
            degrees_of_freedom = class_counts - 1
        covariances = scatter
        covariances /= degrees_of_freedom[:, None, None]
        self.singular_ = []
        for c, covariance in zip(fitted_classes, covariances, strict=True):
            if counts[c] <= means.shape[1] or is_singular(covariance):
                self.singular_.append(classes[c])
        self.factors_, self.jitter_ = self._factorise(covariances)

    def remarks(self) -> list[str]:
        """See `Method.remarks`."""
        if not self.singular_:
            return []
        count = len(self.singular_)
        names = f"{count} of {len(self.means_)} classes"
        if count <= 3:
            names = ", ".join(self.singular_)
        problem = "too few detections for so many dimensions, or features that depend on each other"
        effect = f"jitter {self.jitter_:g} decides the scores"
        return [f"singular covariance of {names} ({problem}): {effect}"]

    def _factorise(self, covariances: np.ndarray) -> tuple[np.ndarray, float]:
        """Lower Cholesky factors of Σ_c + ε I, and ε; the covariances are overwritten."""
        diagonal = np.einsum("cdd->cd", covariances)  # a view
        before = diagonal.copy()
        jitters = JITTERS
        tried = "any jitter up to 1"
        if self.jitter is not None:
            jitters = [self.jitter]
            tried = f"the jitter {self.jitter:g}"
        for jitter in jitters:
            diagonal[:] = before + jitter
            try:
                factors = [np.linalg.cholesky(covariance) for covariance in covariances]
            except np.linalg.LinAlgError:
                continue
            return np.stack(factors), jitter
        problem = f"a class covariance does not factorise with {tried}"
        raise FitError(f"{self.name}: {problem}; the features' scale may be far from 1")

    def _score(self, rows: Rows) -> Array:
        h = self._vectors(rows)
        if isinstance(h, np.ndarray) and self._can_skip_classes(len(h)):
            log_densities = self._of_classes_that_matter(h, rows)
        else:
            of_classes = [self._log_density(h, c, rows) for c in range(len(self.means_))]
            log_densities = rows.xp.stack(of_classes, axis=1)
        log_densities -= rows.number(float(0.5 * h.shape[1] * np.log(2 * np.pi)))
        return log_sum_exp(log_densities + self.log_weights_)

    def _log_density(self, h: Array, c: int, rows: Rows) -> Array:
        """log N(h; μ_c, Σ_c + ε I) but for what all classes share, shape (n,)."""
        factor = self.factors_[c]
        white = lower_solved(factor, (h - self.means_[c]).T)
        return -0.5 * (squared_norms(white.T) + self._log_determinant(factor, rows))

    def _log_determinant(self, factor: Array, rows: Rows) -> Array:
        xp = rows.xp
        return 2 * xp.sum(xp.log(cast(xp.linalg.diagonal(factor), rows.dtype)))

    def _can_skip_classes(self, row_count: int) -> bool:
        classes, dimensions = self.means_.shape
        return (
            row_count >= MIN_BOUNDED_ROWS
            and classes >= MIN_BOUNDED_CLASSES
            and dimensions >= MIN_BOUNDED_DIMENSIONS
        )

    def _of_classes_that_matter(self, h: np.ndarray, rows: Rows) -> np.ndarray:
        """`_log_density` of each class, shape (n, C); −∞ where it changes no digit of the score."""
        matter = self._bounds.matter(h)
        log_densities = np.full(matter.shape, -np.inf)
        for c in range(len(self.means_)):
            members = np.flatnonzero(matter[:, c])
            if len(members):
                log_densities[members, c] = self._log_density(h[members], c, rows)
        return log_densities

    @cached_property
    def _bounds(self) -> GaussianBounds:
        diagonals = np.diagonal(self.factors_, axis1=1, axis2=2).astype(np.float64)
        offsets = self.log_weights_ - np.log(diagonals).sum(axis=1)
        return GaussianBounds(self.means_, self.factors_, offsets)
