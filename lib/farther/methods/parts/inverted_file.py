"""An approximate index: vectors in lists by their nearest centroid, of which a query looks through a few."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from farther.methods.parts.neighbours import nearest

#: Rounds of k-means; the lists need not be optimal, only even enough.
ROUNDS = 10
#: Training vectors a list that k-means looks at.
SAMPLE = 64


@dataclass
class InvertedFile:
    """Stored vectors, ordered by list (in the literature: an inverted file, IVF).

    Args:
        centroids: ndarray of shape (L, D), float32.
        stored: ndarray of shape (M, D), float32: list 0, then list 1, …
        starts: Where each list starts in `stored`, and its end: ndarray of shape (L + 1,), int64.
    """

    centroids: np.ndarray
    stored: np.ndarray
    starts: np.ndarray

    @classmethod
    def build(cls, stored: np.ndarray, seed: int) -> Self:
        """Sorts vectors into about √M lists, by k-means on a sample of them."""
        rng = np.random.default_rng(seed)
        count = max(1, round(len(stored) ** 0.5))
        sample = stored[rng.permutation(len(stored))[: SAMPLE * count]]
        centroids = sample[:count].copy()
        for _ in range(ROUNDS):
            assigned = nearest(centroids, sample, 1)[:, 0]
            for place in np.unique(assigned):
                centroids[place] = sample[assigned == place].mean(axis=0)
        assigned = nearest(centroids, stored, 1)[:, 0]
        order = np.argsort(assigned, kind="stable")
        starts = np.searchsorted(assigned[order], np.arange(count + 1))
        return cls(centroids, np.ascontiguousarray(stored[order]), starts)

    def nearest(self, queries: np.ndarray, k: int, probes: int) -> np.ndarray:
        """The k nearest vectors in the `probes` lists whose centroids are nearest; exact where those hold fewer than k.

        Returns:
            Their indices in `stored`, nearest first: ndarray of shape (N, k), int64.
        """
        probed = nearest(self.centroids, queries, min(probes, len(self.centroids)))
        found = np.full((len(queries), k), -1, np.int64)
        distances = np.full((len(queries), k), np.inf, np.float32)
        squares = np.einsum("md,md->m", self.stored, self.stored)
        for place in range(len(self.centroids)):
            first, last = self.starts[place], self.starts[place + 1]
            asking = np.flatnonzero((probed == place).any(axis=1))
            if last == first or len(asking) == 0:
                continue
            here = squares[first:last] - 2 * (queries[asking] @ self.stored[first:last].T)
            distances[asking], found[asking] = _merge(distances[asking], found[asking], here, first)
        short = np.flatnonzero(found[:, -1] < 0)
        if len(short):
            found[short] = nearest(self.stored, np.ascontiguousarray(queries[short]), k)
        return found

    def recall(self, k: int, probes: int, seed: int, sample: int = 1000) -> float:
        """Share of the k nearest other stored vectors that the index finds, over so many stored vectors at random."""
        drawn = np.random.default_rng(seed).permutation(len(self.stored))[:sample]
        queries = np.ascontiguousarray(self.stored[drawn])
        k = min(k + 1, len(self.stored))  # the first is the vector itself
        exact, found = nearest(self.stored, queries, k), self.nearest(queries, k, probes)
        if k == 1:
            return 1.0
        return float(np.mean([np.isin(e[1:], f).mean() for e, f in zip(exact, found, strict=True)]))


def _merge(distances: np.ndarray, found: np.ndarray, here: np.ndarray, first: int) -> tuple[np.ndarray, np.ndarray]:
    """The k smallest of what was found and of a list's distances, in order."""
    k = distances.shape[1]
    indices = np.broadcast_to(np.arange(first, first + here.shape[1]), here.shape)
    distances, found = np.hstack([distances, here]), np.hstack([found, indices])
    order = np.argsort(distances, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(distances, order, axis=1), np.take_along_axis(found, order, axis=1)
