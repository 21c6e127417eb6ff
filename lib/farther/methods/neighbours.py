"""Nearest neighbours: exact by FAISS, or by matrix products without it; approximate by FAISS.

All compare float32. The exact searches find the same neighbours, except for ties and near ties.
scikit-learn's takes 1.8 times as long as the matrix products (20,000 × 1,024 stored vectors, 7,000
queries).
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

import numpy as np

from farther.methods.arrays import Array, namespace, row_products, squared_norms

if TYPE_CHECKING:
    import faiss

# Imported in functions: FAISS, an optional package.

#: Products held at once, 16 MiB of float32: what is done with more of them waits for memory.
PRODUCTS = 4 * 1024 * 1024
#: Queries whose exact distances are compared at a time, in the processor's cache.
QUERIES_IN_CACHE = 128
#: Smallest number of queries that are multiplied together, not one by one.
MIN_QUERIES_OF_PRODUCT = 6
#: Rounds of k-means for an approximate index; its cells need only be roughly even.
ROUNDS = 5
#: Stored vectors per cell that k-means is fitted to.
VECTORS_PER_CELL = 64


def has_faiss() -> bool:
    """True if FAISS is installed."""
    return importlib.util.find_spec("faiss") is not None


def nearest(stored: np.ndarray, queries: np.ndarray, k: int) -> np.ndarray:
    """Indices of the k nearest stored vectors by Euclidean distance, nearest first.

    Args:
        stored: ndarray of shape (M, D), float32, C-contiguous, M ≥ k.
        queries: ndarray of shape (N, D), float32, C-contiguous.
        k: Number of neighbours.

    Returns:
        ndarray of shape (N, k), int64.
    """
    if has_faiss():
        return _by_faiss(stored, queries, k)
    stored_squares = squared_norms(stored)
    neighbours = np.empty((len(queries), k), np.int64)
    for rows in row_blocks(len(queries), len(stored)):
        # Without ‖query‖², which does not change the order.
        distances = stored_squares - 2 * (queries[rows] @ stored.T)
        values, columns = smallest(distances, k)
        neighbours[rows] = in_order(values, columns)
    return neighbours


def _by_faiss(
    stored: np.ndarray, queries: np.ndarray, k: int, *, is_product: bool = False
) -> np.ndarray:
    import faiss

    # By default it compares fewer than 128,000 values of queries one by one: 1,000 queries of 64
    # values take 6 times as long. The setting is one for all of the process, and of speed only.
    faiss.cvar.distance_compute_blas_threshold = MIN_QUERIES_OF_PRODUCT * queries.shape[1]
    metric = faiss.METRIC_L2
    if is_product:
        metric = faiss.METRIC_INNER_PRODUCT
    _, neighbours = faiss.knn(queries, stored, k, metric=metric)
    return neighbours


def nearest_tensors(stored: Array, queries: Array, k: int) -> Array:
    """As `nearest`, of tensors."""
    stored = stored.float()
    distances = squared_norms(stored) - 2 * (queries @ stored.T)
    return distances.topk(k, dim=1, largest=False).indices


def ranked_square(stored: Array, queries: Array, near: Array, rank: int, dtype: Any) -> Array:
    """Squared distance of each query to one of some stored vectors.

    Args:
        stored: Shape (M, D), float32.
        queries: Shape (n, D), float32.
        near: Rows of the stored vectors that are compared with each query, shape (n, m).
        rank: Which of them: 0 for the nearest.
        dtype: Type of the numbers in which distances are computed.

    Returns:
        Shape (n,).
    """
    if not isinstance(queries, np.ndarray):
        exact = queries.to(dtype)
        by_column = [squared_norms(exact - stored[rows].to(dtype)) for rows in near.T]
        squares = namespace(exact).stack(by_column, axis=1)
        return squares.topk(rank + 1, dim=1, largest=False).values[:, rank]
    squares = np.empty(len(queries))
    for row in range(0, len(queries), QUERIES_IN_CACHE):
        part = slice(row, row + QUERIES_IN_CACHE)
        exact = queries[part].astype(dtype)
        by_column = [squared_norms(exact - stored[rows]) for rows in near[part].T]
        squares[part] = np.partition(np.stack(by_column), rank, axis=0)[rank]
    return squares


def largest_products(stored: Array, queries: Array, k: int, dtype: Any = np.float64) -> Array:
    """The k largest inner products of each query with a stored vector, unordered.

    Of shape (N, k), in `dtype`; of arrays float64. float32 finds them, but products in float32
    would move scores by 10⁻⁶ of their spread.

    Args:
        stored, queries, k: As in `nearest`.
    """
    if not isinstance(queries, np.ndarray):
        products_of_largest, largest = (queries @ stored.float().T).topk(k, dim=1)
        if queries.dtype == dtype:
            return products_of_largest
        exact = queries.to(dtype)
        by_column = [row_products(exact, stored[rows].to(dtype)) for rows in largest.T]
        return namespace(exact).stack(by_column, axis=1)
    if has_faiss():
        largest = _by_faiss(stored, queries, k, is_product=True)
    else:
        largest = np.empty((len(queries), k), np.int64)
        for rows in row_blocks(len(queries), len(stored)):
            largest[rows] = np.argpartition(queries[rows] @ stored.T, -k, axis=1)[:, -k:]
    exact = queries.astype(np.float64)
    return np.stack([np.vecdot(exact, stored[rows]) for rows in largest.T], axis=1)


def row_blocks(rows: int, width: int) -> list[slice]:
    """Slices of rows, so that `PRODUCTS` values of some width are held at once."""
    step = max(1, PRODUCTS // width)
    return [slice(first, first + step) for first in range(0, rows, step)]


def parts_of(rows: Array, width: int) -> list[slice]:
    """As `row_blocks` of an array's rows; all rows of a tensor, which come in small parts."""
    if isinstance(rows, np.ndarray):
        return row_blocks(len(rows), width)
    return [slice(None)]


def cell_centroids(stored: np.ndarray, seed: int) -> np.ndarray:
    """Centroids of about √M cells for an approximate index, by k-means.

    Returns:
        ndarray of shape (L, D), float32.
    """
    import faiss

    cells = max(1, round(len(stored) ** 0.5))
    sample = stored[
        np.random.default_rng(seed).permutation(len(stored))[: VECTORS_PER_CELL * cells]
    ]
    kmeans = faiss.Kmeans(
        stored.shape[1], cells, niter=ROUNDS, seed=seed, min_points_per_centroid=1
    )
    kmeans.train(sample)
    return np.asarray(kmeans.centroids)


def inverted_file(centroids: np.ndarray, stored: np.ndarray) -> faiss.IndexIVFFlat:
    """FAISS's index of stored vectors by the cell of their nearest centroid.

    Args:
        centroids: ndarray of shape (L, D), float32.
        stored: ndarray of shape (M, D), float32, C-contiguous, of which the index has a copy.
    """
    import faiss

    width = stored.shape[1]
    quantizer = faiss.IndexFlatL2(width)
    quantizer.add(centroids)
    index = faiss.IndexIVFFlat(quantizer, width, len(centroids))
    index.add(stored)
    return index


def nearest_in_cells(
    index: faiss.IndexIVFFlat, queries: np.ndarray, k: int, probes: int
) -> np.ndarray:
    """Indices of the k nearest vectors in the cells of the nearest centroids, nearest first.

    Queries whose cells hold fewer than k vectors search all cells.

    Args:
        index: See `inverted_file`.
        queries: ndarray of shape (N, D), float32, C-contiguous.
        k: Number of neighbours, at most M.
        probes: Number of cells.

    Returns:
        ndarray of shape (N, k), int64.
    """
    neighbours = _in_cells(index, queries, k, probes)
    incomplete = np.flatnonzero(neighbours[:, -1] < 0)
    if len(incomplete):
        neighbours[incomplete] = _in_cells(index, queries[incomplete], k, index.nlist)
    return neighbours


def _in_cells(index: faiss.IndexIVFFlat, queries: np.ndarray, k: int, probes: int) -> np.ndarray:
    """As `nearest_in_cells`; −1 where the cells hold fewer than k vectors."""
    import faiss

    parameters = faiss.SearchParametersIVF()
    parameters.nprobe = probes
    _, neighbours = index.search(queries, k, params=parameters)
    return neighbours


def smallest(values: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k smallest values of each row and their columns, unordered; all of (n, m) where m ≤ k."""
    rows, width = values.shape
    if width <= k:
        return values, np.broadcast_to(np.arange(width), values.shape)
    limits = np.partition(values, k - 1, axis=1)[:, k - 1 : k]
    chosen = (values <= limits).ravel().nonzero()[0]
    if len(chosen) == rows * k:  # a third of the time of argpartition
        columns = chosen.reshape(rows, k) - width * np.arange(rows)[:, None]
    else:  # ties
        columns = np.argpartition(values, k - 1, axis=1)[:, :k]
    return np.take_along_axis(values, columns, axis=1), columns


def in_order(values: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """The columns of each row, in the order of their values, smallest first.

    All of shape (n, k).
    """
    return np.take_along_axis(columns, np.argsort(values, axis=1, kind="stable"), axis=1)
