"""Scores that look at one vector a region, and how they read it while the rows stream by."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import ClassVar, Literal

import numpy as np
from pydantic.dataclasses import dataclass

from farther.methods.base import Method, RegionsLike
from farther.registry import STRICT
from farther.tables import Regions

#: A pass over all rows: vectors (n, D) as float64 and predicted classes (n,), a block at a time. Whoever makes the pass
#: may overwrite the vectors.
Passes = Callable[[], Iterator[tuple[np.ndarray, np.ndarray]]]
#: Values of a block: so few that their float64 copy stays in the processor's cache.
BLOCK = 1 << 20


@dataclass(config=STRICT, kw_only=True)
class VectorMethod(Method):
    """Base of the scores on a region's features, or on another vector that a subclass puts in their place."""

    column: ClassVar[Literal["features", "latent"]] = "features"

    def _vectors(self, regions: Regions) -> np.ndarray:
        """The vectors that the score looks at, ndarray of shape (n, D), float64."""
        return stored_vectors(regions, self.column)

    def _blocks(self, regions: RegionsLike) -> Iterator[Regions]:
        for batch in self._batches(regions):
            rows = max(1, BLOCK // max(1, getattr(batch, self.column).shape[1]))
            for first in range(0, len(batch), rows):
                yield batch[first : first + rows]

    def _passes(self, regions: RegionsLike) -> Passes:
        return lambda: ((self._vectors(block), block.label) for block in self._blocks(regions))


def stored_vectors(regions: Regions, column: Literal["features", "latent"]) -> np.ndarray:
    """A vector column as float64, a copy, ndarray of shape (n, D)."""
    return getattr(regions, column).astype(np.float64)


def unit_length(vectors: np.ndarray) -> np.ndarray:
    """Rows scaled to Euclidean length 1, in place; a row of zeros stays one."""
    lengths = np.sqrt(squared_lengths(vectors))
    vectors /= np.where(lengths > 0, lengths, 1.0)[:, None]
    return vectors


def class_means(passes: Passes, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and mean vector of each predicted class (FMIYC, Eq. 20), in one pass over at least one row.

    Returns:
        counts of shape (K,), int64, and means of shape (K, D); zeros for a class without rows.
    """
    counts, sums = np.zeros(classes, np.int64), np.zeros(())
    for vectors, labels in passes():
        members = (labels == np.arange(classes)[:, None]).astype(np.float64)
        sums = sums + members @ vectors
        counts += np.bincount(labels, minlength=classes)
    return counts, sums / np.maximum(counts, 1)[:, None]


def shared_covariance(passes: Passes, counts: np.ndarray, means: np.ndarray) -> np.ndarray:
    """Covariance around the class means, one for all classes, divided by N (FMIYC, Eq. 20); ndarray of shape (D, D)."""
    scatter = Scatter(means.shape[1])
    for vectors, labels in passes():
        vectors -= means[labels]
        scatter.add(vectors)
    return scatter.matrix() / counts.sum()


def mean_vector(passes: Passes) -> np.ndarray:
    """Mean of all rows, ndarray of shape (D,), in one pass over at least one row."""
    sums, rows = np.zeros(()), 0
    for vectors, _ in passes():
        sums, rows = sums + vectors.sum(axis=0), rows + len(vectors)
    return sums / rows


def second_moment(passes: Passes, origin: np.ndarray) -> tuple[np.ndarray, int]:
    """Σ (x − o)(x − o)ᵀ over all rows, ndarray of shape (D, D), and the number of rows."""
    scatter, rows = Scatter(len(origin)), 0
    for vectors, _ in passes():
        vectors -= origin
        scatter.add(vectors)
        rows += len(vectors)
    return scatter.matrix(), rows


class Scatter:
    """Σ x xᵀ over rows that come a block at a time, summed in place and in float64.

    Args:
        dimensions: D, the length of a row.
    """

    def __init__(self, dimensions: int):
        self._upper = np.zeros((dimensions, dimensions), order="F")

    def add(self, vectors: np.ndarray) -> None:
        """Adds the rows of an ndarray of shape (n, D), float64."""
        from scipy.linalg.blas import dsyrk

        self._upper = dsyrk(1.0, vectors.T, beta=1.0, c=self._upper, overwrite_c=True)

    def matrix(self) -> np.ndarray:
        """The sum so far, ndarray of shape (D, D)."""
        return self._upper + np.triu(self._upper, 1).T


def whitening(covariance: np.ndarray) -> np.ndarray:
    """A matrix A with A Aᵀ = the (pseudo-)inverse of a covariance: rows x @ A have unit covariance.

    Directions without variance, up to rounding, are left out, as in a pseudo-inverse.

    Returns:
        ndarray of shape (D, r), r the rank; upper triangular where r is D. See `whitened`.
    """
    from scipy.linalg.lapack import dtrtri

    smallest = len(covariance) * np.finfo(np.float64).eps
    try:
        factor = np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError:
        pass
    else:
        pivots = np.diagonal(factor) ** 2
        if pivots.min() > smallest * pivots.max():  # of full rank: much cheaper than its eigenvectors
            return dtrtri(factor.T, lower=False)[0]
    variances, directions = np.linalg.eigh(covariance)
    kept = variances > smallest * max(float(variances[-1]), 0.0)
    kept[0] = False  # what does not factorise is singular, whatever rounding makes of its smallest variance
    return directions[:, kept] / np.sqrt(variances[kept])


def whitened(vectors: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """Rows times a matrix of `whitening`, ndarray of shape (n, r); the rows are overwritten.

    A triangular matrix takes half the multiplications.
    """
    if matrix.shape[0] != matrix.shape[1]:
        return vectors @ matrix
    from scipy.linalg.blas import dtrmm

    return dtrmm(1.0, matrix.T, vectors.T, lower=True, overwrite_b=True).T


def squared_lengths(vectors: np.ndarray) -> np.ndarray:
    """Squared Euclidean length of each row, ndarray of shape (n,)."""
    return np.vecdot(vectors, vectors)
