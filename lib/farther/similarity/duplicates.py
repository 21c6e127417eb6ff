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


#: A pair of rows of splits, by the splits' numbers.
_PAIRS = pl.Schema([("cosine", pl.Float32), *((name, pl.Int64) for name in ("a", "i", "b", "j"))])


def _highest(cosines: np.ndarray, limit: int) -> np.ndarray:
    """The rows of `limit` of the highest cosines, of equal ones the first: all pairs of blank images are equal."""
    if len(cosines) <= limit:
        return np.arange(len(cosines))
    least = np.partition(cosines, len(cosines) - limit)[len(cosines) - limit]
    above = np.flatnonzero(cosines > least)
    return np.concatenate([above, np.flatnonzero(cosines == least)[: limit - len(above)]])


def near_duplicates(splits: Sequence[EmbeddedSplit], threshold: float, limit: int = 10_000) -> tuple[Duplicates, int]:
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
    for a, b in combinations_with_replacement(range(len(splits)), 2):
        first_row = 0 if a == b else None
        for i, j, cosines in pairs_above(splits[a].vectors, splits[b].vectors, threshold, first_row=first_row):
            rows = _highest(cosines, limit)
            part = pl.DataFrame({"cosine": cosines[rows], "i": i[rows], "j": j[rows]})
            part = part.with_columns(a=pl.lit(a), b=pl.lit(b))
            ordered = pl.concat([best, part.select(pl.col(name).cast(kind) for name, kind in _PAIRS.items())])
            best = ordered.sort(*_PAIRS, descending=[True, False, False, False, False]).head(limit)
            found += len(i)
    texts = {"image_id": pl.String, "digest": pl.String}
    parts = [
        pl.DataFrame({"image_id": split.image_id, "digest": split.digest}, schema_overrides=texts).select(
            pl.lit(number, pl.Int64).alias("split"), pl.int_range(pl.len(), dtype=pl.Int64).alias("row"), *texts
        )
        for number, split in enumerate(splits)
    ]
    if not best.height:
        return Duplicates.empty(), 0
    images, names = pl.concat(parts), pl.Series([split.name for split in splits])
    one = best.join(images, left_on=["a", "i"], right_on=["split", "row"], how="left", maintain_order="left")
    other = best.join(images, left_on=["b", "j"], right_on=["split", "row"], how="left", maintain_order="left")
    table = Duplicates(
        split=names.gather(best["a"]),
        image_id=one["image_id"],
        other_split=names.gather(best["b"]),
        other_image_id=other["image_id"],
        cosine=best["cosine"],
        same_file=one["digest"] == other["digest"],
    )
    return table, found
