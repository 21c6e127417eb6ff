"""Near-duplicate images: pairs whose embeddings are almost equal."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations_with_replacement

import numpy as np
import polars as pl

from farther.similarity.nearest import pairs_above
from farther.similarity.sources import EmbeddedSplit
from farther.tables import Column, Table
from farther.tables.arguments import instances, number, whole_number


class Duplicates(Table):
    """One row per pair of images that look the same, the most similar first.

    Columns:
        split, image_id: The first image.
        other_split, other_image_id: The second image, later in the order of splits and rows.
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
_PAIRS = pl.Schema({"cosine": pl.Float32, "first": pl.Int64, "second": pl.Int64})


def _highest(cosines: np.ndarray, limit: int) -> np.ndarray:
    """The rows of the highest cosines, of equal ones the first.

    All pairs of blank images are equal.

    Args:
        cosines: ndarray of shape (P,).
        limit: Largest number of rows.
    """
    if len(cosines) <= limit:
        return np.arange(len(cosines))
    lowest = np.partition(cosines, len(cosines) - limit)[len(cosines) - limit]
    above = np.flatnonzero(cosines > lowest)
    equal = np.flatnonzero(cosines == lowest)
    return np.concatenate([above, equal[: limit - len(above)]])


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
    splits = instances(splits, EmbeddedSplit, "splits")
    threshold = number(threshold, "threshold", at_least=-1, at_most=1)
    limit = whole_number(limit, "limit", at_least=0)
    first_rows = np.cumsum([0, *(len(split) for split in splits)])
    most_similar = pl.DataFrame(schema=_PAIRS)
    count = 0
    for a, b in combinations_with_replacement(range(len(splits)), 2):
        first_row = 0 if a == b else None
        pair_blocks = pairs_above(
            splits[a].vectors, splits[b].vectors, threshold, first_row=first_row
        )
        for rows, other_rows, cosines in pair_blocks:
            count += len(rows)
            highest = _highest(cosines, limit)
            pairs = pl.DataFrame(
                {
                    "cosine": cosines[highest],
                    "first": first_rows[a] + rows[highest],
                    "second": first_rows[b] + other_rows[highest],
                }
            )
            all_pairs = pl.concat([most_similar, pairs.cast(_PAIRS)])
            most_similar = all_pairs.sort(*_PAIRS, descending=[True, False, False]).head(limit)
    if not most_similar.height:
        return Duplicates.empty(), 0

    split_names = np.array([split.name for split in splits], object)
    split_of_row = np.repeat(split_names, np.diff(first_rows))
    image_id = np.concatenate([split.image_id for split in splits])
    digest = np.concatenate([split.digest for split in splits])
    first = most_similar["first"].to_numpy()
    second = most_similar["second"].to_numpy()
    table = Duplicates(
        split=split_of_row[first],
        image_id=image_id[first],
        other_split=split_of_row[second],
        other_image_id=image_id[second],
        cosine=most_similar["cosine"],
        same_file=digest[first] == digest[second],
    )
    return table, count
