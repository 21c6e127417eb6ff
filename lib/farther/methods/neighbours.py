"""Which stored vector is the k-th nearest: FAISS where it is installed, blocked matrix products where not."""

from __future__ import annotations

import importlib.util

import numpy as np

#: Distances held at once by the matrix products, 64 MiB of float32.
BLOCK = 16 * 1024 * 1024


def kth_neighbour(stored: np.ndarray, queries: np.ndarray, k: int) -> np.ndarray:
    """Index of the k-th nearest stored vector by Euclidean distance, exactly.

    Args:
        stored: ndarray of shape (M, D), float32, C-contiguous, M ≥ k.
        queries: ndarray of shape (N, D), float32, C-contiguous.
        k: 1 is the nearest.

    Returns:
        ndarray of shape (N,), int64.
    """
    if importlib.util.find_spec("faiss") is not None:
        return _by_faiss(stored, queries, k)
    return _by_products(stored, queries, k)


def _by_faiss(stored: np.ndarray, queries: np.ndarray, k: int) -> np.ndarray:
    import faiss

    _, nearest = faiss.knn(queries, stored, k)
    return nearest[:, -1]


def _by_products(stored: np.ndarray, queries: np.ndarray, k: int) -> np.ndarray:
    squares = np.einsum("md,md->m", stored, stored)
    rows = max(1, BLOCK // len(stored))
    found = np.empty(len(queries), np.int64)
    for first in range(0, len(queries), rows):
        # |q − s|² without |q|², which does not change the order
        distances = squares - 2 * (queries[first : first + rows] @ stored.T)
        found[first : first + rows] = np.argpartition(distances, k - 1, axis=1)[:, k - 1]
    return found
