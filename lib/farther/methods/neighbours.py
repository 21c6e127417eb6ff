"""Nearest neighbours: exact by FAISS, or by matrix products without it; approximate among vectors in cells.

All compare float32. The exact searches find the same neighbours, except for ties and near ties.
scikit-learn's takes 1.8 times as long as the matrix products (20,000 × 1,024 stored vectors, 7,000
queries).
"""

from __future__ import annotations

import importlib.util
from itertools import pairwise
from typing import Any

import numpy as np

from farther.methods.arrays import Array, namespace, row_products, squared_norms
from farther.methods.linear_algebra import eigenvectors

#: Products held at once, 16 MiB of float32: what is done with more of them waits for memory.
PRODUCTS = 4 * 1024 * 1024
#: Products with the vectors of a cell that are held at once: few enough to stay in the processor's
#: cache.
COMPARED = 2 * 1024 * 1024
#: Queries whose exact distances are compared at a time, in the processor's cache.
DECIDED = 128
#: At most this number of queries are searched in cells one by one, and fewer than this are
#: multiplied one by one.
ALONE, SEPARATE = 16, 6
#: Rounds of k-means for an approximate index; its cells need only be roughly even.
ROUNDS = 5
#: Stored vectors per cell that k-means is fitted to.
SAMPLE = 64

#: `Bounded` pays for at most this number of queries, and from this number of stored vectors on.
FEW, MANY = 64, 20_000
#: Numbers of principal directions whose coordinates bound a distance, and vectors that these are
#: taken from.
DIRECTIONS, LEARNED_FROM = (32, 96), 20_000
#: The smallest bounds of blocks of this number of stored vectors are compared, and distances taken
#: to some of those.
BLOCK, SEEMING = 128, 64
#: Vectors with the lowest second bounds, whose distances tighten the one to the k-th.
TIGHTENED = 128
#: Queries that are bounded together, and stored vectors whose reduced coordinates stay in the
#: processor's cache.
TOGETHER, CACHED = 8, 8_192
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
        return _by_faiss(stored, queries, k)
    squares = squared_norms(stored)
    found = np.empty((len(queries), k), np.int64)
    for rows in row_blocks(len(queries), len(stored)):
        distances = squares - 2 * (
            queries[rows] @ stored.T
        )  # without ‖query‖², which does not change the order
        found[rows] = in_order(*smallest(distances, k))
    return found


def _by_faiss(
    stored: np.ndarray, queries: np.ndarray, k: int, *, is_product: bool = False
) -> np.ndarray:
    import faiss

    # By default it compares fewer than 128,000 values of queries one by one: 1,000 queries of 64
    # values take 6 times as long. The setting is one for all of the process, and of speed only.
    faiss.cvar.distance_compute_blas_threshold = SEPARATE * queries.shape[1]
    return faiss.knn(
        queries, stored, k, metric=faiss.METRIC_INNER_PRODUCT if is_product else faiss.METRIC_L2
    )[1]


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
        of_columns = [squared_norms(exact - stored[column].to(dtype)) for column in near.T]
        squares = namespace(exact).stack(of_columns, axis=1)
        return squares.topk(rank + 1, dim=1, largest=False).values[:, rank]
    squares = np.empty(len(queries))
    for row in range(0, len(queries), DECIDED):
        part = slice(row, row + DECIDED)
        exact = queries[part].astype(dtype)
        compared = np.stack([squared_norms(exact - stored[column]) for column in near[part].T])
        squares[part] = np.partition(compared, rank, axis=0)[rank]
    return squares


class Bounded:
    """Exact nearest neighbours of few queries among many stored vectors, most of which are never compared.

    In orthonormal coordinates ‖q − s‖² ≥ ‖q_p − s_p‖² + (‖q_r‖ − ‖s_r‖)², with p some directions
    and r all others: a squared distance in p + 1 dimensions. The directions are the principal ones,
    where most of a distance is. A few directions bound the distances to all vectors, more
    directions those to the vectors that are left, and only vectors whose bounds are below the
    distance to k others are compared.

    Args:
        stored: ndarray of shape (M, D), float32.
    """

    def __init__(self, stored: np.ndarray):
        sample = stored[:: -(-len(stored) // LEARNED_FROM)].astype(np.float64)
        self._stored, self._mean = stored, sample.mean(axis=0).astype(np.float32)
        sample -= self._mean
        width = stored.shape[1]
        directions = eigenvectors(sample.T @ sample, max(0, width - DIRECTIONS[1]), width)[1][
            :, ::-1
        ]
        self._directions = np.ascontiguousarray(directions, dtype=np.float32)
        blocks = [self._reduced(stored[rows]) for rows in row_blocks(len(stored), width)]
        first, self._second = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
        squares = squared_norms(first)
        #: One column per vector: a query's (−2 q, 1) times it is the first bound, but for ‖q‖².
        self._first = np.concatenate([first.T, squares[None]])
        self._slack = SLACK * float(squares.max())

    def nearest(self, queries: np.ndarray, k: int) -> np.ndarray:
        """As `nearest`, with k below M / `BLOCK`."""
        found = np.empty((len(queries), k), np.int64)
        for row in range(0, len(queries), TOGETHER):
            few = queries[row : row + TOGETHER]
            first, second = self._reduced(few)
            bounds = self._products(
                np.append(-2 * first, np.ones((len(few), 1), np.float32), axis=1)
            )
            lowered = squared_norms(first) - self._slack
            for number, query in enumerate(few):
                rows = self._left(query, bounds[number], lowered[number], k)
                near = squared_norms(self._second[rows] - second[number])
                found[row + number] = self._compared(query, rows, near, k)
        return found

    def _products(self, factors: np.ndarray) -> np.ndarray:
        """Products of factors (n, p + 2) with all columns, (n, M).

        A vector at a time, since BLAS copies the whole matrix for a product with a few; and a part
        of the matrix at a time, which stays in the processor's cache for all of them.
        """
        found = np.empty((len(factors), self._first.shape[1]), np.float32)
        for start in range(0, found.shape[1], CACHED):
            part = self._first[:, start : start + CACHED]
            for factor, bounds in zip(factors, found, strict=True):
                np.dot(factor, part, out=bounds[start : start + CACHED])
        return found

    def _left(self, query: np.ndarray, bounds: np.ndarray, lowered: float, k: int) -> np.ndarray:
        """Vectors that may be neighbours by their first bounds (M,), which are lower by `lowered`."""
        blocks = bounds[: len(bounds) // BLOCK * BLOCK].reshape(-1, BLOCK)
        several = min(max(k, SEEMING), len(blocks))
        best = np.argpartition(blocks.min(axis=1), several - 1)[:several]
        limit = self._kth(query, best * BLOCK + blocks[best].argmin(axis=1), k)
        return np.flatnonzero(bounds <= limit - lowered)

    def _compared(
        self, query: np.ndarray, rows: np.ndarray, bounds: np.ndarray, k: int
    ) -> np.ndarray:
        """The k nearest of these vectors, whose second bounds are given."""
        if len(rows) > TIGHTENED:
            limit = self._kth(query, rows[np.argpartition(bounds, TIGHTENED)[:TIGHTENED]], k)
            rows = rows[bounds <= limit + self._slack]
        return rows[np.argsort(self._squared(query, rows), kind="stable")[:k]]

    def _kth(self, query: np.ndarray, rows: np.ndarray, k: int) -> float:
        """Squared distance to the k-th nearest of some stored vectors."""
        return float(np.partition(self._squared(query, rows), k - 1)[k - 1])

    def _squared(self, query: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Squared distances of a query to some stored vectors."""
        return squared_norms(self._stored[rows] - query)

    def _reduced(self, vectors: np.ndarray) -> list[np.ndarray]:
        """Coordinates in the fewer and in all directions, each with the norm of the rest: shapes (n, p + 1)."""
        centred = vectors - self._mean
        inside, squares = centred @ self._directions, squared_norms(centred)
        found = []
        for count in DIRECTIONS:
            kept = inside[:, :count]
            rest = np.sqrt(np.maximum(squares - squared_norms(kept), 0))
            found.append(np.concatenate([kept, rest[:, None]], axis=1))
        return found


def largest_products(stored: Array, queries: Array, k: int, dtype: Any = np.float64) -> Array:
    """The k largest inner products of each query with a stored vector, unordered: ndarray of shape (N, k), float64.

    float32 finds them, but products in float32 would move scores by 10⁻⁶ of their spread.

    Args:
        stored, queries, k: As in `nearest`.
    """
    if not isinstance(queries, np.ndarray):
        products_of_largest, largest = (queries @ stored.float().T).topk(k, dim=1)
        if queries.dtype == dtype:
            return products_of_largest
        exact = queries.to(dtype)
        return namespace(exact).stack(
            [row_products(exact, stored[rows].to(dtype)) for rows in largest.T], axis=1
        )
    if has_faiss():
        found = _by_faiss(stored, queries, k, is_product=True)
    else:
        found = np.empty((len(queries), k), np.int64)
        for rows in row_blocks(len(queries), len(stored)):
            found[rows] = np.argpartition(queries[rows] @ stored.T, -k, axis=1)[:, -k:]
    exact = queries.astype(np.float64)
    return np.stack([np.vecdot(exact, stored[rows]) for rows in found.T], axis=1)


def row_blocks(rows: int, width: int) -> list[slice]:
    """Slices of rows, so that `PRODUCTS` values of some width are held at once."""
    step = max(1, PRODUCTS // width)
    return [slice(first, first + step) for first in range(0, rows, step)]


def parts_of(rows: Array, width: int) -> list[slice]:
    """As `row_blocks` of an array's rows; all rows of a tensor, which come in parts that are small enough."""
    if isinstance(rows, np.ndarray):
        return row_blocks(len(rows), width)
    return [slice(None)]


def cell_centroids(stored: np.ndarray, seed: int) -> np.ndarray:
    """Centroids of about √M cells for an approximate index, by k-means: ndarray of shape (L, D), float32."""
    import faiss

    cells = max(1, round(len(stored) ** 0.5))
    sample = stored[np.random.default_rng(seed).permutation(len(stored))[: SAMPLE * cells]]
    kmeans = faiss.Kmeans(
        stored.shape[1], cells, niter=ROUNDS, seed=seed, min_points_per_centroid=1
    )
    kmeans.train(sample)
    return np.asarray(kmeans.centroids)


def sort_into_cells(stored: np.ndarray, centroids: np.ndarray) -> np.ndarray:
    """Sorts vectors by their nearest centroid, in place.

    Args:
        stored: ndarray of shape (M, D), float32; of vectors in one cell the order stays.
        centroids: ndarray of shape (L, D), float32.

    Returns:
        Index of the first vector of each cell, and M at the end: ndarray of shape (L + 1,), int64.
    """
    cells = nearest(centroids, stored, 1)[:, 0]
    order = np.argsort(cells, kind="stable")
    sources = order.tolist()
    for first in range(
        len(sources)
    ):  # a copy of all vectors may not fit into memory: one cycle after another
        place, vector = first, stored[first].copy()
        while (source := sources[place]) != first:
            stored[place], sources[place], place = stored[source], place, source
        stored[place], sources[place] = vector, place
    return np.searchsorted(cells[order], np.arange(len(centroids) + 1))


class Cells:
    """Approximate nearest neighbours: a query is compared with the vectors in the cells of the nearest centroids.

    With m the mean, ½ ‖q − s‖² = ½ ‖s − m‖² − (q − m)ᵀ s, but for what all vectors share: one
    matrix product for all queries of a cell, which rounds by the query's distance from the mean,
    not from the origin.

    Args:
        centroids: ndarray of shape (L, D), float32.
        stored: ndarray of shape (M, D), float32, as `sort_into_cells` leaves it.
        first: What it returns.
    """

    def __init__(self, centroids: np.ndarray, stored: np.ndarray, first: np.ndarray):
        self._centroids, self._stored = centroids, stored
        self._mean = np.average(centroids, axis=0, weights=np.diff(first)).astype(np.float32)
        self._cells = [slice(*bounds) for bounds in pairwise(first.tolist())]
        blocks = row_blocks(*stored.shape)
        self._halves = (
            np.concatenate([squared_norms(stored[rows] - self._mean) for rows in blocks]) / 2
        )

    def nearest(self, queries: np.ndarray, k: int, probes: int) -> np.ndarray:
        """Indices of the k nearest vectors in the `probes` cells with the nearest centroids, nearest first.

        Queries whose cells hold fewer than k vectors are compared with all vectors.

        Args:
            queries: ndarray of shape (N, D), float32, C-contiguous.
            k: Number of neighbours, at most M.
            probes: Number of cells.

        Returns:
            ndarray of shape (N, k), int64.
        """
        probed = nearest(self._centroids, queries, min(probes, len(self._centroids)))
        search = self._one_by_one if len(queries) <= ALONE else self._by_cell
        parts = row_blocks(len(queries), k * probed.shape[1])
        found = np.concatenate(
            [search(queries[rows] - self._mean, probed[rows], k) for rows in parts]
        )
        short = np.flatnonzero(found[:, -1] < 0)
        if len(short):
            found[short] = nearest(self._stored, np.ascontiguousarray(queries[short]), k)
        return found

    def _by_cell(self, offsets: np.ndarray, probed: np.ndarray, k: int) -> np.ndarray:
        """As `nearest`, from offsets from the mean and the cells (n, p); −1 where these hold fewer than k vectors."""
        pairs = np.argsort(probed, axis=None, kind="stable")
        cells, asking = probed.ravel()[pairs], pairs // probed.shape[1]
        near, found = np.full((len(pairs), k), np.inf, np.float32), np.full((len(pairs), k), -1)
        bounds = [0, *(np.flatnonzero(np.diff(cells)) + 1).tolist(), len(cells)]
        for start, end in pairwise(bounds):
            members = self._cells[cells[start]]
            stored, halves = self._stored[members], self._halves[members]
            step = max(1, COMPARED // max(1, len(stored)))
            for first in range(start, end, step):
                rows = slice(first, min(first + step, end))
                distances = np.subtract(halves, products(stored, offsets[asking[rows]]), order="C")
                values, columns = smallest(distances, k)
                near[rows, : len(stored)] = values
                found[rows, : len(stored)] = members.start + columns
        place = np.argsort(pairs)
        values, columns = smallest(near[place].reshape(len(offsets), -1), k)
        return in_order(
            values, np.take_along_axis(found[place].reshape(len(offsets), -1), columns, axis=1)
        )

    def _one_by_one(self, offsets: np.ndarray, probed: np.ndarray, k: int) -> np.ndarray:
        """As `_by_cell`, in less time for few queries."""
        found = np.full((len(offsets), k), -1)
        for row, (offset, cells) in enumerate(zip(offsets, probed, strict=True)):
            members = [self._cells[cell] for cell in cells]
            parts = [self._halves[rows] - np.vecdot(self._stored[rows], offset) for rows in members]
            place = in_order(*smallest(np.concatenate(parts)[None], k))[0]
            ends = np.cumsum([len(part) for part in parts])
            within = np.searchsorted(ends, place, side="right")
            lasts = np.array([rows.stop for rows in members])
            found[row, : len(place)] = place + (lasts - ends)[within]
        return found


def products(stored: np.ndarray, queries: np.ndarray) -> np.ndarray:
    """Inner products of n queries with m stored vectors, which the cache need not hold: shape (n, m)."""
    if len(queries) < SEPARATE:
        return np.vecdot(stored, queries[:, None])
    if 4 * len(queries) < len(stored):  # BLAS rearranges both factors, the left one faster
        return (stored @ queries.T).T
    return queries @ stored.T


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
    """The columns of each row, in the order of their values, smallest first; all of shape (n, k)."""
    return np.take_along_axis(columns, np.argsort(values, axis=1, kind="stable"), axis=1)
