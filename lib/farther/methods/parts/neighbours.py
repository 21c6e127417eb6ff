"""Which stored vectors are nearest: FAISS where it is installed, blocked matrix products where not.

Both compare float32. What they find is the same, but for ties and near ties.
"""

from __future__ import annotations

import importlib.util

import numpy as np

#: Values held at once by the matrix products, 64 MiB of float32.
BLOCK = 16 * 1024 * 1024


def nearest(stored: np.ndarray, queries: np.ndarray, k: int) -> np.ndarray:
    """The k nearest stored vectors by Euclidean distance, exactly.

    Args:
        stored: ndarray of shape (M, D), float32, C-contiguous, M ≥ k.
        queries: ndarray of shape (N, D), float32, C-contiguous.
        k: How many.

    Returns:
        Their indices, nearest first: ndarray of shape (N, k), int64.
    """
    if importlib.util.find_spec("faiss") is not None:
        import faiss

        return faiss.knn(queries, stored, k)[1]
    squares = np.einsum("md,md->m", stored, stored)
    found = np.empty((len(queries), k), np.int64)
    for rows in _blocks(len(queries), len(stored)):
        # |q − s|² without |q|², which does not change the order
        distances = squares - 2 * (queries[rows] @ stored.T)
        chosen = np.argpartition(distances, k - 1, axis=1)[:, :k]
        order = np.argsort(np.take_along_axis(distances, chosen, axis=1), axis=1, kind="stable")
        found[rows] = np.take_along_axis(chosen, order, axis=1)
    return found


def largest_products(stored: np.ndarray, queries: np.ndarray, k: int) -> np.ndarray:
    """The k largest inner products of each query with a stored vector, in no order, exactly.

    Args:
        stored, queries, k: As in `nearest`.

    Returns:
        ndarray of shape (N, k), float32.
    """
    if importlib.util.find_spec("faiss") is not None:
        import faiss

        return faiss.knn(queries, stored, k, metric=faiss.METRIC_INNER_PRODUCT)[0]
    found = np.empty((len(queries), k), np.float32)
    for rows in _blocks(len(queries), len(stored)):
        found[rows] = np.partition(queries[rows] @ stored.T, -k, axis=1)[:, -k:]
    return found


def _blocks(rows: int, width: int) -> list[slice]:
    step = max(1, BLOCK // max(width, 1))
    return [slice(first, first + step) for first in range(0, rows, step)]
