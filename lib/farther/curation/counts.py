"""Counts of categories, and of the fates of the images that a benchmark was chosen from."""

from __future__ import annotations

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


def category_counts(objects: Objects) -> pl.DataFrame:
    """Category, objects and images that show one; the most frequent category first (FMIYC, Figures 8 and 9)."""
    counts = objects.frame.group_by("category").agg(objects=pl.len(), images=pl.col("image_id").n_unique())
    return counts.sort("objects", "category", descending=[True, False])


def fate_counts(fates: Fates) -> pl.DataFrame:
    """Images by source, fate and kind of reason, in words: dataset, subset, fate, reason, images."""
    counts = fates.frame.group_by("dataset", "subset", "fate", reason=rule_kind().replace(REASONS)).agg(images=pl.len())
    order = ["dataset", "subset", pl.col("fate").cast(pl.Enum(FATES)), -pl.col("images").cast(pl.Int64), "reason"]
    return counts.sort(order)


def rule_kind() -> pl.Expr:
    """Kind of the rule that decided on an image: a key of `REASONS`, or the reason why none did."""
    return pl.col("rule").str.split(": ").list.first()
