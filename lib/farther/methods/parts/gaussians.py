"""One Gaussian a class, with a covariance of its own."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from farther.methods.base import FitError
from farther.methods.parts.vectors import squared_lengths

#: Tried in this order: the published code's range.
JITTERS = [0.0, *(10.0**power for power in range(-20, 1))]


def class_covariances(
    members: Iterable[tuple[int, np.ndarray]], counts: np.ndarray, means: np.ndarray, kept: np.ndarray
) -> np.ndarray:
    """Covariance of each kept class around its mean, divided by its count.

    Args:
        members: A class and some of its rows (n, D) as float64, until all have come; rows are overwritten.
        counts: Rows a class, ndarray of shape (K,).
        means: ndarray of shape (K, D).
        kept: Indices of the classes wanted, ndarray of shape (C,).

    Returns:
        ndarray of shape (C, D, D): the one thing here that grows with both.
    """
    scatter = np.zeros((len(kept), means.shape[1], means.shape[1]))
    place = {int(label): i for i, label in enumerate(kept)}
    for label, vectors in members:
        if label in place:
            vectors -= means[label]
            scatter[place[label]] += vectors.T @ vectors
    scatter /= counts[kept][:, None, None]
    return scatter


def cholesky(covariances: np.ndarray, jitter: float | None) -> tuple[np.ndarray, float]:
    """Lower Cholesky factors of covariances with `jitter` added to their diagonals.

    Args:
        covariances: ndarray of shape (C, D, D); overwritten.
        jitter: Added as it is; None finds the smallest of 0, 10⁻²⁰ … 1 with which all of them factorise.

    Returns:
        ndarray of shape (C, D, D), and the jitter.

    Raises:
        FitError: they do not factorise.
    """
    diagonal = np.einsum("cdd->cd", covariances)  # a view
    before = diagonal.copy()
    for trial in JITTERS if jitter is None else [jitter]:
        diagonal[:] = before + trial
        try:
            return np.stack([np.linalg.cholesky(covariance) for covariance in covariances]), trial
        except np.linalg.LinAlgError:
            continue
    tried = "any jitter up to 1" if jitter is None else f"the jitter {jitter:g}"
    raise FitError(f"a class covariance does not factorise with {tried}; the features' scale may be far from 1")


def log_densities(vectors: np.ndarray, means: np.ndarray, factors: np.ndarray) -> np.ndarray:
    """log N(z; μ_c, L_c L_cᵀ) of each row under each class.

    Args:
        vectors: ndarray of shape (n, D).
        means: ndarray of shape (C, D).
        factors: Lower Cholesky factors L, ndarray of shape (C, D, D).

    Returns:
        ndarray of shape (n, C).
    """
    from scipy.linalg import solve_triangular

    found = np.empty((len(vectors), len(means)))
    for place, (mean, factor) in enumerate(zip(means, factors, strict=True)):
        white = solve_triangular(factor, (vectors - mean).T, lower=True, overwrite_b=True, check_finite=False)
        log_determinant = 2 * np.log(np.diagonal(factor)).sum()
        found[:, place] = -0.5 * (squared_lengths(white.T) + log_determinant)
    return found - 0.5 * vectors.shape[1] * np.log(2 * np.pi)
