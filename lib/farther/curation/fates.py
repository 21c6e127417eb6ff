"""The fate of each image of an OOD source, and the reason; counts of fates and of categories."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal

import numpy as np
import polars as pl

from farther.curation.rules import Rule
from farther.curation.sources import LabelledImages
from farther.errors import ParameterError
from farther.tables import Column, Objects, Table

#: Values of `rule` where no object decided.
EMPTY = "no object is labelled"
NO_NEAR = "no near category is labelled"
NO_OVERLAP = "no ID class and no overlapping category is labelled"
PUBLISHED = "as published"
NOT_DRAWN = "not among the images that `most` draws"

#: Value of `object_id` where no object decided.
NO_OBJECT = -1


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


class Fates(Table):
    """One row per image of an OOD source.

    Columns:
        image_id, dataset, subset: The image. fate: `near`, `far`, `farther`, or `removed`. rule:
        The rule that decided: `overlap: spoon → diningtable`, or the reason why none did; by
        reviewers' decision,
            `decision: removed → person`.
        category: Category of the object that decided, "" if none did.
        object_id: That object, -1 if none did.
        decided_by: The reviewers who decided, "" where the rules did.
        by_rules: Fate and reason by the rules alone, where reviewers decided or have to; else "".
        file: See `farther.tables.Images`; "" where it is not known.
    """

    image_id = Column(pl.String)
    dataset = Column(pl.String)
    subset = Column(pl.String)
    fate = Column(pl.String, among=FATES)
    rule = Column(pl.String)
    category = Column(pl.String)
    object_id = Column(pl.Int64)
    decided_by = Column(pl.String, default="")
    by_rules = Column(pl.String, default="")
    file = Column(pl.String, default="")


#: The rule that decided, and on which object or by whom.
BY = (
    pl.when(pl.col("decided_by") != "")
    .then(pl.format(", by {}", "decided_by"))
    .otherwise(pl.lit(""))
)
REASON = (
    pl.when(pl.col("by_rules") != "")
    .then(pl.format("{}{} (by the rules: {})", "rule", BY, "by_rules"))
    .when(pl.col("object_id") != NO_OBJECT)
    .then(pl.format("{} (object {}, {})", "rule", "object_id", "category"))
    .otherwise("rule")
)


def decide(
    source: LabelledImages,
    rules: Mapping[str, Rule],
    *,
    subset: str,
    farther: bool,
    empty: Literal["keep", "remove"],
) -> Fates:
    """The fate of each image of a source.

    The rule with the highest precedence among those of the image's objects decides; among equals,
    the first object in the table.
    """
    decisive = pl.DataFrame(
        [(category, str(rule), rule.kind, rule.precedence) for category, rule in rules.items()],
        schema={
            "category": pl.String,
            "rule": pl.String,
            "kind": pl.String,
            "precedence": pl.Int64,
        },
        orient="row",
    )
    if farther:
        decisive = decisive.filter(pl.col("kind") != "near")
    objects = source.objects.frame.select("image_id", "object_id", "category")
    deciding = (
        objects.with_row_index()
        .join(decisive, on="category")
        .sort("precedence", "index")
        .unique("image_id", keep="first", maintain_order=True)
    )
    labelled = source.shows(np.ones(len(objects), bool))
    images = source.images.frame.select("image_id", "dataset", "file", labelled=labelled)
    joined = images.join(deciding, on="image_id", how="left", maintain_order="left")
    without = ~pl.col("labelled")
    fate = (
        pl.when(pl.col("kind") == "near")
        .then(pl.lit("near"))
        .when(pl.col("kind").is_not_null() | (without & (empty == "remove")))
        .then(pl.lit("removed"))
        .otherwise(pl.lit("farther" if farther else "far"))
    )
    none = (
        pl.when(without).then(pl.lit(EMPTY)).otherwise(pl.lit(NO_OVERLAP if farther else NO_NEAR))
    )
    frame = joined.select(
        "image_id",
        "dataset",
        fate.alias("fate"),
        pl.col("rule").fill_null(none),
        pl.col("category").fill_null(""),
        pl.col("object_id").fill_null(NO_OBJECT),
        "file",
        subset=pl.lit(subset),
    )
    return Fates.from_frame(frame)


def as_published(
    source: LabelledImages, subset: str, distance: str, empty: Literal["keep", "remove"]
) -> Fates:
    """The fate of each image of a split that is taken as its authors published it."""
    fates = decide(source, {}, subset=subset, farther=False, empty=empty)
    kept = pl.when(pl.col("fate") != "removed")
    fate, rule = (
        kept.then(pl.lit(distance)).otherwise("fate"),
        kept.then(pl.lit(PUBLISHED)).otherwise("rule"),
    )
    return fates.with_frame(fates.frame.with_columns(fate=fate, rule=rule))


def without_undrawn(fates: Fates, distance: str, drawn: Collection[str]) -> Fates:
    """The fates, with images of a distance removed that are not drawn into its split.

    Args:
        fates: Fates of one source.
        distance: The split's.
        drawn: Names of the images that are in the split.
    """
    undrawn = (pl.col("fate") == distance) & ~pl.col("image_id").is_in(list(drawn))
    fate = pl.when(undrawn).then(pl.lit("removed")).otherwise("fate")
    rule = pl.when(undrawn).then(pl.lit(NOT_DRAWN)).otherwise("rule")
    category = pl.when(undrawn).then(pl.lit("")).otherwise("category")
    object_id = pl.when(undrawn).then(pl.lit(NO_OBJECT)).otherwise("object_id")
    frame = fates.frame.with_columns(fate=fate, rule=rule, category=category, object_id=object_id)
    return fates.with_frame(frame)


def explain(fates: Fates, image_id: str) -> str:
    """The fate of an image and the reason, one sentence per OOD source that has such an image.

    Args:
        fates: The fates that `curate` gives.
        image_id: An image of an OOD dataset.

    Raises:
        ParameterError: no OOD source has such an image.
    """
    found = fates.frame.filter(pl.col("image_id") == image_id)
    if not found.height:
        raise ParameterError(f"no image {image_id!r} in the benchmark's OOD sources")
    sentence = pl.format("{} {} {}: {}; {}", "dataset", "subset", "image_id", "fate", REASON)
    return "\n".join(found.select(sentence).to_series())


def why(fates: Fates, row: int) -> str:
    """The rule that decided on an image, and on which object or by whom.

    Args:
        fates: The fates that `curate` gives.
        row: Row of the image.
    """
    return fates.frame[row].select(REASON).item()


def category_counts(objects: Objects) -> pl.DataFrame:
    """Category, objects and images that show one; the most frequent category first (FMIYC, Figures 8 and 9)."""
    counts = (
        objects.frame.filter(~objects.is_unlabelled)
        .group_by("category")
        .agg(objects=pl.len(), images=pl.col("image_id").n_unique())
    )
    return counts.sort("objects", "category", descending=[True, False])


def fate_counts(fates: Fates) -> pl.DataFrame:
    """Images by source, fate and kind of reason, in words: dataset, subset, fate, reason, images."""
    counts = fates.frame.group_by(
        "dataset", "subset", "fate", reason=rule_kind().replace(REASONS)
    ).agg(images=pl.len())
    order = [
        "dataset",
        "subset",
        pl.col("fate").cast(pl.Enum(FATES)),
        -pl.col("images").cast(pl.Int64),
        "reason",
    ]
    return counts.sort(order)


def rule_kind() -> pl.Expr:
    """Kind of the rule that decided on an image: a key of `REASONS`, or the reason why none did."""
    return pl.col("rule").str.split(": ").list.first()
