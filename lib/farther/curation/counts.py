"""Counts of categories, and of the fates of the images that a benchmark was chosen from."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from farther.curation.fates import Fates
from farther.tables import Objects

#: Fates of an image of an OOD source, the nearest to the ID dataset first.
FATES = ("near", "far", "farther", "removed")

#: Kinds of rules, in words.
REASONS = {
    "ID class": "an ID class is labelled",
    "overlap": "a category that overlaps with an ID class is labelled",
    "near": "a near category is labelled",
    "decision": "people decided",
    "candidate": "the candidate has not been reviewed yet",
}


@dataclass(frozen=True, slots=True)
class CategoryCount:
    """Number of objects of a category, and of images that show one."""

    category: str
    objects: int
    images: int


def category_counts(objects: Objects) -> list[CategoryCount]:
    """Objects and images of each category that occurs, the most frequent first (FMIYC, Figures 8 and 9)."""
    counts = objects.frame.group_by("category").agg(objects=pl.len(), images=pl.col("image_id").n_unique())
    ordered = counts.sort("objects", "category", descending=[True, False])
    return [CategoryCount(**row) for row in ordered.iter_rows(named=True)]


@dataclass(frozen=True, slots=True)
class FateCount:
    """Number of images of a source with one fate for one kind of reason."""

    dataset: str
    subset: str
    fate: str
    reason: str
    images: int


def fate_counts(fates: Fates) -> list[FateCount]:
    """Images by source, fate and kind of reason, in words."""
    reason = pl.col("rule").str.split(": ").list.first().replace(REASONS)
    counts = fates.frame.group_by("dataset", "subset", "fate", reason=reason).agg(images=pl.len())
    order = ["dataset", "subset", pl.col("fate").cast(pl.Enum(FATES)), -pl.col("images").cast(pl.Int64), "reason"]
    return [FateCount(**row) for row in counts.sort(order).iter_rows(named=True)]
