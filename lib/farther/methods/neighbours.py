"""Nearest neighbours: exact by FAISS, or by matrix products without it; approximate by an inverted file of FAISS.

All compare float32. The exact searches find the same neighbours, except for ties and near ties. scikit-learn's takes
1.8 times as long as the matrix products (20,000 × 1,024 stored vectors, 7,000 queries).
"""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np

from farther.methods.linear_algebra import eigenvectors, squared_norms

#: Products held at once, 64 MiB of float32.
PRODUCTS = 16 * 1024 * 1024
#: Rounds of k-means for an approximate index; its cells need only be roughly even.
ROUNDS = 10
#: Stored vectors per cell that k-means is fitted to.
SAMPLE = 64

#: `Bounded` pays for at most this number of queries, and from this number of stored vectors on.
FEW, MANY = 64, 20_000
#: Principal directions whose coordinates bound a distance, and vectors that these are taken from.
DIRECTIONS, LEARNED_FROM = 32, 20_000
#: Bounds of this number of stored vectors are looked at together.
BLOCK = 128
#: Vectors with the lowest bounds, whose distances tighten the bound on the k-th.
TIGHTENED = 256
#: Rounding of a squared distance in float32, as a share of the largest squared norm.
SLACK = 1e-5


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
        import faiss

        return faiss.knn(queries, stored, k)[1]
    squares = squared_norms(stored)
    found = np.empty((len(queries), k), np.int64)
    for rows in row_blocks(len(queries), len(stored)):
        distances = squares - 2 * (queries[rows] @ stored.T)  # without ‖query‖², which does not change the order
        chosen = np.argpartition(distances, k - 1, axis=1)[:, :k]
        order = np.argsort(np.take_along_axis(distances, chosen, axis=1), axis=1, kind="stable")
        found[rows] = np.take_along_axis(chosen, order, axis=1)
    return found


class Bounded:
    """Exact nearest neighbours of few queries among many stored vectors, most of which are never compared.

    In orthonormal coordinates ‖q − s‖² ≥ ‖q_p − s_p‖² + (‖q_r‖ − ‖s_r‖)², with p some directions and r all others: a
    squared distance in p + 1 dimensions. The directions are the principal ones, where most of a distance is. The k
    vectors that seem nearest bound the distance to the k-th; only vectors whose own bound is below that are compared.

    Args:
        stored: ndarray of shape (M, D), float32.
    """

    def __init__(self, stored: np.ndarray):
        sample = stored[:: -(-len(stored) // LEARNED_FROM)].astype(np.float64)
        self._stored, self._mean = stored, sample.mean(axis=0).astype(np.float32)
        sample -= self._mean
        width = stored.shape[1]
        directions = eigenvectors(sample.T @ sample, max(0, width - DIRECTIONS), width)[1]
        self._directions = np.ascontiguousarray(directions, dtype=np.float32)
        blocks = [self._reduced(stored[rows]) for rows in row_blocks(len(stored), width)]
        reduced = np.concatenate(blocks)
        squares = squared_norms(reduced)
        #: One column per vector: a query's (−2 q, 1) times it is the bound, but for ‖q‖².
        self._columns = np.concatenate([reduced.T, squares[None]])
        self._slack = SLACK * float(squares.max())

    def nearest(self, queries: np.ndarray, k: int) -> np.ndarray:
        """As `nearest`, with k below M / `BLOCK`."""
        reduced = self._reduced(queries)
        products = np.append(-2 * reduced, np.ones((len(reduced), 1), np.float32), axis=1) @ self._columns
        rows = zip(queries, products, squared_norms(reduced) - self._slack, strict=True)
        return np.stack([self._of_one(query, bounds, k, lowered) for query, bounds, lowered in rows])

    def _of_one(self, query: np.ndarray, bounds: np.ndarray, k: int, lowered: float) -> np.ndarray:
        """Indices of the neighbours of one query, from bounds (M,) of squared distances that are lower by `lowered`."""
        blocks = bounds[: len(bounds) // BLOCK * BLOCK].reshape(-1, BLOCK)
        best = np.argpartition(blocks.min(axis=1), k - 1)[:k]
        seeming = best * BLOCK + blocks[best].argmin(axis=1)
        rows = np.flatnonzero(bounds <= self._squared(query, seeming).max() - lowered)
        if len(rows) > TIGHTENED:
            low = rows[np.argpartition(bounds[rows], TIGHTENED)[:TIGHTENED]]
            kth = np.partition(self._squared(query, low), k - 1)[k - 1]
            rows = rows[bounds[rows] <= kth - lowered]
        return rows[np.argsort(self._squared(query, rows), kind="stable")[:k]]

    def _squared(self, query: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Squared distances of a query to some stored vectors."""
        return squared_norms(self._stored[rows] - query)

    def _reduced(self, vectors: np.ndarray) -> np.ndarray:
        """Coordinates in the directions, and the norm of the rest: shape (n, p + 1)."""
        centred = vectors - self._mean
        inside = centred @ self._directions
        rest = np.sqrt(np.maximum(squared_norms(centred) - squared_norms(inside), 0))
        return np.concatenate([inside, rest[:, None]], axis=1)


def largest_products(stored: np.ndarray, queries: np.ndarray, k: int) -> np.ndarray:
    """The k largest inner products of each query with a stored vector, unordered: ndarray of shape (N, k), float32.

    Args:
        stored, queries, k: As in `nearest`.
    """
    if has_faiss():
        import faiss

        return faiss.knn(queries, stored, k, metric=faiss.METRIC_INNER_PRODUCT)[0]
    found = np.empty((len(queries), k), np.float32)
    for rows in row_blocks(len(queries), len(stored)):
        found[rows] = np.partition(queries[rows] @ stored.T, -k, axis=1)[:, -k:]
    return found


def row_blocks(rows: int, width: int) -> list[slice]:
    """Slices of rows, so that `PRODUCTS` values of some width are held at once."""
    step = max(1, PRODUCTS // width)
    return [slice(first, first + step) for first in range(0, rows, step)]


def cell_centroids(stored: np.ndarray, seed: int) -> np.ndarray:
    """Centroids of about √M cells for an approximate index, by k-means: ndarray of shape (L, D), float32."""
    import faiss

    cells = max(1, round(len(stored) ** 0.5))
    sample = stored[np.random.default_rng(seed).permutation(len(stored))[: SAMPLE * cells]]
    kmeans = faiss.Kmeans(stored.shape[1], cells, niter=ROUNDS, seed=seed, min_points_per_centroid=1)
    kmeans.train(sample)
    return np.asarray(kmeans.centroids)


def inverted_file(centroids: np.ndarray, stored: np.ndarray) -> Any:
    """FAISS index (IVF) that holds each stored vector in the cell of its nearest centroid."""
    import faiss

    quantizer = faiss.IndexFlatL2(centroids.shape[1])
    quantizer.add(centroids)
    index = faiss.IndexIVFFlat(quantizer, centroids.shape[1], len(centroids))
    index.train(centroids)  # nothing is learned: the quantizer has its centroids
    index.add(stored)
    return index


def approximately_nearest(index: Any, queries: np.ndarray, k: int, probes: int) -> np.ndarray:
    """Indices of the k nearest vectors in the `probes` cells with the nearest centroids, shape (N, k), int64.

    Queries whose cells hold fewer than k vectors are searched for in all cells.
    """
    index.nprobe = min(probes, index.nlist)
    found = np.asarray(index.search(queries, k)[1])
    short = np.flatnonzero(found[:, -1] < 0)
    if len(short):
        index.nprobe = index.nlist
        found[short] = index.search(np.ascontiguousarray(queries[short]), k)[1]
    return found
