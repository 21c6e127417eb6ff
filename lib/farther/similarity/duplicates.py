"""Near-duplicate images: pairs whose embeddings are almost equal."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations_with_replacement

import numpy as np
import polars as pl

from farther.similarity.nearest import pairs_above
from farther.similarity.sources import EmbeddedSplit
from farther.tables import Column, Table


class Duplicates(Table):
    """One row per pair of images that look the same, the most similar first.

    Columns:
        split, image_id: One image.
        other_split, other_image_id: The other one, later in the order of splits and rows.
        cosine: Of their embeddings.
        same_file: True if their files are equal byte by byte.
    """

    split = Column(pl.String)
    image_id = Column(pl.String)
    other_split = Column(pl.String)
    other_image_id = Column(pl.String)
    cosine = Column(pl.Float32)
    same_file = Column(pl.Boolean)


class _Best:
    """The `limit` pairs with the highest cosines; at most about twice as many are in memory."""

    def __init__(self, limit: int):
        self.limit = limit
        self.found = 0
        self._parts: list[np.ndarray] = []
        self._held = 0

    def add(self, rows: np.ndarray) -> None:
        """Adds pairs: ndarray of shape (N, 5): cosine, split, row, other split, other row."""
        self.found += len(rows)
        self._parts.append(rows)
        self._held += len(rows)
        if self._held > 2 * self.limit:
            self._parts = [self.sorted()]
            self._held = len(self._parts[0])

    def sorted(self) -> np.ndarray:
        """The best, the highest cosine first; among equals in the order of splits and rows."""
        rows = np.concatenate(self._parts) if self._parts else np.zeros((0, 5))
        order = np.lexsort((rows[:, 4], rows[:, 3], rows[:, 2], rows[:, 1], -rows[:, 0]))
        return rows[order[: self.limit]]


def near_duplicates(splits: Sequence[EmbeddedSplit], threshold: float, limit: int = 10_000) -> tuple[Duplicates, int]:
    """Pairs of images, within a split and across splits, whose cosine is at least `threshold`.

    Raises:
        DataError: the splits were embedded by two models.
    """
    best = _Best(limit)
    for a, b in combinations_with_replacement(range(len(splits)), 2):
        first_row = 0 if a == b else None
        for i, j, cosines in pairs_above(splits[a].vectors, splits[b].vectors, threshold, first_row=first_row):
            best.add(np.stack([cosines, np.full(len(i), a), i, np.full(len(i), b), j], axis=1))
    rows = best.sorted()
    first = np.cumsum([0, *(len(split) for split in splits)])
    names = np.repeat(np.array([split.name for split in splits], dtype=object), np.diff(first))
    images = np.concatenate([np.zeros(0, object), *(split.image_id for split in splits)])
    digests = np.concatenate([np.zeros(0, object), *(split.digest for split in splits)])
    places = rows[:, 1:].astype(np.int64)
    one, other = first[places[:, 0]] + places[:, 1], first[places[:, 2]] + places[:, 3]
    table = Duplicates(
        split=names[one],
        image_id=images[one],
        other_split=names[other],
        other_image_id=images[other],
        cosine=rows[:, 0],
        same_file=(digests[one] == digests[other]).astype(bool),
    )
    return table, best.found
