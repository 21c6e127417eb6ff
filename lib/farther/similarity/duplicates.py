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


#: A pair of images, by their rows in all splits one after another.
_PAIRS = pl.Schema({"cosine": pl.Float32, "one": pl.Int64, "other": pl.Int64})


def _highest(cosines: np.ndarray, limit: int) -> np.ndarray:
    """The rows of `limit` of the highest cosines, of equal ones the first: all pairs of blank images are equal."""
    if len(cosines) <= limit:
        return np.arange(len(cosines))
    least = np.partition(cosines, len(cosines) - limit)[len(cosines) - limit]
    above = np.flatnonzero(cosines > least)
    return np.concatenate([above, np.flatnonzero(cosines == least)[: limit - len(above)]])


def near_duplicates(
    splits: Sequence[EmbeddedSplit], threshold: float, limit: int = 10_000
) -> tuple[Duplicates, int]:
    """Pairs of images, within a split and across splits, whose cosine is at least `threshold`.

    Args:
        splits: Splits with their embeddings.
        threshold: Smallest cosine, −1 to 1.
        limit: Pairs that are listed, the most similar first.

    Returns:
        The listed pairs, and the number of all.

    Raises:
        DataError: the splits were embedded by two models.
    """
    best, found = pl.DataFrame(schema=_PAIRS), 0
    firsts = np.cumsum([0, *(len(split) for split in splits)])
    for a, b in combinations_with_replacement(range(len(splits)), 2):
        first_row = 0 if a == b else None
        for i, j, cosines in pairs_above(
            splits[a].vectors, splits[b].vectors, threshold, first_row=first_row
        ):
            rows = _highest(cosines, limit)
            part = pl.DataFrame(
                {"cosine": cosines[rows], "one": firsts[a] + i[rows], "other": firsts[b] + j[rows]}
            )
            best = (
                pl.concat([best, part.cast(_PAIRS)])
                .sort(*_PAIRS, descending=[True, False, False])
                .head(limit)
            )
            found += len(i)
    if not best.height:
        return Duplicates.empty(), 0
    names = np.repeat(np.array([split.name for split in splits], object), np.diff(firsts))
    image_id, digest = (
        np.concatenate([getattr(split, name) for split in splits])
        for name in ("image_id", "digest")
    )
    one, other = best["one"].to_numpy(), best["other"].to_numpy()
    table = Duplicates(
        split=names[one],
        image_id=image_id[one],
        other_split=names[other],
        other_image_id=image_id[other],
        cosine=best["cosine"],
        same_file=digest[one] == digest[other],
    )
    return table, found
