"""Distance to the k-th nearest training region."""

from __future__ import annotations

import threading
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import NonNegativeInt, PositiveInt

from farther.methods.arrays import Array, as_float32, normalised
from farther.methods.base import FitError, Method, Publication, RegionsLike, count_rows, register
from farther.methods.neighbours import (
    cell_centroids,
    has_faiss,
    inverted_file,
    nearest,
    nearest_in_cells,
    nearest_tensors,
    ranked_square,
)
from farther.methods.rows import RegionRows, Rows
from farther.terms import Protocol

#: Stored vectors that the recall of an approximate index is measured on: more would take as long as
#: the index.
RECALL_SAMPLE = 256

#: float32 may exchange neighbours that are as near: exact distances decide among this many on
#: either side of the k-th.
SPARE = 2

#: Held while an approximate index is built, so that threads that score by one method build one.
BUILDING = threading.Lock()


@register("knn")
class KNN(Method):
    """Minus the distance to the k-th nearest training region, on features scaled to unit norm.

    The search compares float32; among the neighbours about the k-th, distances in float64 decide.
    It is exact unless `index="approximate"`, which needs FAISS; then `recall_` is the share of the
    k nearest that the index finds, over 256 training regions drawn at random, and the report shows
    it.

    Formula:
        score = − ‖u − u_(k)‖, u = h / ‖h‖, u_(k) the k-th nearest training vector

    Args:
        k: Rank of the neighbour, 1 for the nearest. The published code uses 10 (Faster R-CNN), 8
            (YOLOv8), 12 (RT-DETR).
        index: "exact", or "approximate": training regions in cells, of which a query searches a
            few, by FAISS, which keeps a second copy of `stored_` in memory.
        probes: Number of cells that a query searches in an approximate index.
        seed: Seed of the k-means of an approximate index, and of the sample that its recall is
            measured on.
        protocol: "paper": the distance; "published-code": its square. The order of the scores is
            the same.
        layer: Read the column `latent.<layer>`, which the detector's parameter `latents` stores, in
            place of features; "latent" is the column of that name.

    Attributes:
        stored_: u of the training regions, ndarray of shape (M, D), float32.
        centroids_: Centroids of the cells of an approximate index, ndarray of shape (L, D),
            float32.
        recall_: Recall of an approximate index.

    References:
        Sun et al., "Out-of-Distribution Detection with Deep Nearest Neighbors", 2022,
        arXiv:2204.06507. Code: https://github.com/deeplearning-wisc/knn-ood

        FMIYC, Eq. 19.

    Example:
        >>> from farther.methods import create
        >>> from farther.methods.examples import toy_regions
        >>> knn = create("knn", k=1).fit(toy_regions(features=[[2.0, 0.0], [0.0, 3.0]]))
        >>> knn.score(toy_regions(features=[[5.0, 0.0], [-1.0, 0.0]])).round(
        ...     4
        ... )  # to (1, 0); to (0, 1)
        array([-0.    , -1.4142])
    """

    publication: ClassVar[Publication | None] = Publication(
        "Out-of-Distribution Detection with Deep Nearest Neighbors",
        2022,
        "https://arxiv.org/abs/2204.06507",
        code="https://github.com/deeplearning-wisc/knn-ood",
    )
    title: ClassVar[str] = "kNN"
    aliases: ClassVar[tuple[str, ...]] = (
        "k-nearest neighbours",
        "k-nearest neighbors",
        "Deep nearest neighbors",
    )
    needs: ClassVar[frozenset[str]] = frozenset({"features"})
    k: PositiveInt = 10
    index: Literal["exact", "approximate"] = "exact"
    probes: PositiveInt = 16
    seed: NonNegativeInt = 0
    protocol: Protocol = "paper"
    layer: str | None = None

    def _fit(self, regions: RegionsLike) -> None:
        count = count_rows(regions)
        if count < self.k:
            raise FitError(f"{self.name}: {count} regions to fit on, but k is {self.k}; lower k")
        self.__dict__.pop("_inverted_file", None)  # of the vectors that it was fitted to before
        self.stored_ = self._all_compared(regions, count)
        if self.index == "approximate":
            if not has_faiss():
                advice = "pip install 'farther[fast]' on Linux"
                raise FitError(f"{self.name}: index='approximate' needs FAISS: {advice}")
            self.centroids_ = cell_centroids(self.stored_, self.seed)
            sample = np.random.default_rng(self.seed).permutation(count)[:RECALL_SAMPLE]
            self.recall_ = self._recall(self.stored_[sample])

    def _compared(self, rows: Rows) -> Array:
        """The vectors u between which distances are taken, shape (n, D), float64."""
        return normalised(self._vectors(rows))

    def _all_compared(self, regions: RegionsLike, count: int) -> np.ndarray:
        """The vectors u of `count` regions, ndarray of shape (count, D), float32."""
        vectors = np.empty((0, 0), np.float32)
        filled = 0
        for block in self._blocks(regions):
            u = self._compared(Rows.of(block))
            if filled == 0:
                # Allocated once: two copies of the largest array here may not fit into memory.
                vectors = np.empty((count, u.shape[1]), np.float32)
            vectors[filled : filled + len(u)] = u
            filled += len(u)
        return vectors

    def _score(self, rows: Rows) -> Array:
        if isinstance(rows, RegionRows):
            u = self._all_compared(rows.regions, len(rows))
        else:
            u = as_float32(self._compared(rows))
        first = max(0, self.k - 1 - SPARE)
        end = min(self.k + SPARE, len(self.stored_))
        near = self._nearest(u, end)[:, first:]
        squares = ranked_square(self.stored_, u, near, self.k - 1 - first, rows.dtype)
        if self.protocol == "paper":
            return -rows.xp.sqrt(squares)
        return -squares

    def no_torch_form(self) -> str:
        """See `Method.no_torch_form`."""
        if self.index == "approximate":
            return (
                "an approximate index is a search in cells, not a matrix product; use index 'exact'"
            )
        return super().no_torch_form()

    def remarks(self) -> list[str]:
        """See `Method.remarks`."""
        if self.index == "exact":
            return []
        return [f"approximate index: finds {100 * self.recall_:.1f}% of the nearest neighbours"]

    def _nearest(self, u: Array, k: int) -> Array:
        if not isinstance(u, np.ndarray):
            return nearest_tensors(self.stored_, u, k)
        if self.index == "exact":
            return nearest(self.stored_, u, k)
        with BUILDING:
            inverted_file = self._inverted_file
        return nearest_in_cells(inverted_file, u, k, self.probes)

    @cached_property
    def _inverted_file(self) -> Any:
        """FAISS's index, of an approximate index."""
        return inverted_file(self.centroids_, self.stored_)

    def _recall(self, queries: np.ndarray) -> float:
        """Mean share of the k nearest stored vectors that the index finds."""
        k = min(self.k + 1, len(self.stored_))  # the first neighbour is the vector itself
        if k == 1:
            return 1.0
        exact = nearest(self.stored_, queries, k)
        approximate = self._nearest(queries, k)
        shares = []
        for exact_rows, approximate_rows in zip(exact, approximate, strict=True):
            shares.append(np.isin(exact_rows[1:], approximate_rows).mean())
        return float(np.mean(shares))
