"""Linear algebra of rows that arrive in blocks.

Means, scatter matrices, whitening and principal components.

A *block* is an ndarray of shape (n, D), float64. Functions read an iterable of blocks once, so
memory is bounded by one block and a D × D matrix, whatever the number of rows. scikit-learn's
estimators want all rows at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np

from farther.methods.arrays import normalised, squared_norms, whitened

# Imported in functions: SciPy's linear algebra, which takes a third of a second.

__all__ = [
    "add_class_sums",
    "class_means",
    "clipped",
    "eigenvectors",
    "is_singular",
    "mean_vector",
    "normalised",
    "principal_components",
    "scatter_matrix",
    "squared_norms",
    "whitened",
    "whitening",
]

#: Rows of so many classes are summed by a dense product, of more by a sparse one.
MAX_CLASSES_OF_PRODUCT = 64


def mean_vector(blocks: Iterable[np.ndarray]) -> tuple[np.ndarray, int]:
    """Mean of all rows, ndarray of shape (D,), and their number, which must not be 0."""
    sums = np.zeros(())
    rows = 0
    for block in blocks:
        sums = sums + block.sum(axis=0)
        rows = rows + len(block)
    return sums / rows, rows


def class_means(
    labelled: Iterable[tuple[np.ndarray, np.ndarray]], classes: int
) -> tuple[np.ndarray, np.ndarray]:
    """Number of rows and mean row of each class.

    Args:
        labelled: Blocks, each with the class of its rows, ndarray of shape (n,).
        classes: K, the number of classes.

    Returns:
        counts N_c of shape (K,), int64, and means μ_c of shape (K, D); zeros for a class without
        rows.
    """
    counts = np.zeros(classes, np.int64)
    sums = np.zeros((classes, 0))
    for block, labels in labelled:
        if sums.shape[1] == 0:
            sums = np.zeros((classes, block.shape[1]))
        add_class_sums(sums, block, labels)
        counts += np.bincount(labels, minlength=classes)
    return counts, sums / np.maximum(counts, 1)[:, None]


def add_class_sums(sums: np.ndarray, block: np.ndarray, labels: np.ndarray) -> None:
    """Adds each row to the sum of its class.

    Args:
        sums: Sum of each class so far, ndarray of shape (K, D), float64: changed in place.
        block: ndarray of shape (n, D), float64.
        labels: Class of each row, ndarray of shape (n,).
    """
    if len(sums) <= MAX_CLASSES_OF_PRODUCT:
        members = (labels == np.arange(len(sums))[:, None]).astype(np.float64)
        sums += members @ block
        return
    from scipy.sparse import csr_array

    # Of the classes in the block alone: it may have fewer rows than there are classes.
    present, place = np.unique(labels, return_inverse=True)
    rows = np.arange(len(labels))
    members_of_class = csr_array((np.ones(len(rows)), (place, rows)), (len(present), len(rows)))
    sums[present] += members_of_class @ block


def scatter_matrix(blocks: Iterable[np.ndarray]) -> np.ndarray:
    """Σ x xᵀ over all rows x, of which there is at least one: ndarray of shape (D, D)."""
    from scipy.linalg.blas import dsyrk

    upper = None
    for block in blocks:
        if upper is None:
            upper = np.zeros((block.shape[1], block.shape[1]), order="F")
        upper = dsyrk(1.0, block.T, beta=1.0, c=upper, overwrite_c=True)
    if upper is None:
        raise ValueError("no rows")
    return upper + np.triu(upper, 1).T


def whitening(covariance: np.ndarray) -> np.ndarray:
    """A matrix A with A Aᵀ = Σ⁺, the (pseudo-)inverse of a covariance Σ.

    Rows x A have unit covariance.

    Directions whose variance is at most D ε times the largest one, ε of float64, are left out, as
    by SciPy's `pinvh` and so by scikit-learn's `EmpiricalCovariance`. Such are sums that a
    LayerNorm keeps constant: their variance is the rounding of float32, and its inverse would
    outweigh all others.

    Returns:
        ndarray of shape (D, r), r the rank; upper triangular if r = D. See `whitened`.
    """
    from scipy.linalg.lapack import dtrtri

    smallest = len(covariance) * np.finfo(np.float64).eps
    factor, is_full = _factor(covariance)
    if factor is not None and is_full:
        return dtrtri(factor, lower=False)[0]
    variances, directions = np.linalg.eigh(covariance)
    kept = variances > smallest * max(float(variances[-1]), 0.0)
    if factor is None:
        kept[0] = False  # Σ is singular, even if rounding makes its smallest variance positive
    elif kept.all():
        return dtrtri(factor, lower=False)[0]
    return directions[:, kept] / np.sqrt(variances[kept])


def _factor(covariance: np.ndarray) -> tuple[np.ndarray | None, bool]:
    """Upper Cholesky factor, None without one.

    And whether the matrix is known to be of full rank.
    """
    from scipy.linalg.lapack import dpocon

    try:
        factor = np.linalg.cholesky(covariance).T
    except np.linalg.LinAlgError:
        return None, False
    # 1 / condition, which is at most smallest / largest variance; the estimate may be a few times
    # too large.
    condition = dpocon(factor, np.abs(covariance).sum(axis=0).max())[0]
    return factor, condition > 10 * len(covariance) * np.finfo(covariance.dtype).eps


def is_singular(covariance: np.ndarray) -> bool:
    """Whether a covariance's rank, as `numpy.linalg.matrix_rank` takes it, is below its size."""
    if _factor(covariance)[1]:  # much cheaper than eigenvalues
        return False
    return bool(np.linalg.matrix_rank(covariance, hermitian=True) < len(covariance))


def eigenvectors(symmetric: np.ndarray, first: int, end: int) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues `first` … `end` − 1 of a symmetric matrix, and their eigenvectors.

    The smallest eigenvalue is number 0.

    Returns:
        ndarrays of shape (end − first,) and (D, end − first), orthonormal columns.
    """
    if 4 * (end - first) > len(symmetric):
        values, directions = np.linalg.eigh(symmetric)
        return values[first:end], directions[:, first:end]
    from scipy.linalg import eigh  # a few eigenvectors cost a third of all

    values, directions = eigh(
        symmetric, subset_by_index=[first, end - 1], driver="evr", check_finite=False
    )
    return values, directions


def principal_components(
    blocks: Callable[[], Iterable[np.ndarray]], components: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Principal component analysis by the eigenvectors of the covariance.

    Args:
        blocks: Starts a pass over all rows; called twice.
        components: C, the number of components; at most D are returned.

    Returns:
        mean of shape (D,), orthonormal columns P of shape (D, C) and variances of shape (C,),
        largest first.
    """
    mean, rows = mean_vector(blocks())
    scatter = scatter_matrix(np.subtract(block, mean, out=block) for block in blocks())
    values, directions = eigenvectors(scatter, max(0, len(mean) - components), len(mean))
    return mean, directions[:, ::-1], values[::-1] / max(rows - 1, 1)  # as scikit-learn's PCA


def clipped(scores: np.ndarray) -> np.ndarray:
    """Scores as float64, with infinities replaced by the largest finite number.

    This keeps their order.
    """
    limit = math.nextafter(math.inf, 0)
    return np.clip(np.asarray(scores, dtype=np.float64), -limit, limit)
