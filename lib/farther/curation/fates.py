"""The split assignment (fate) of each image of an OOD source, and its reason.

And counts of fates and of categories.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal

import numpy as np
import polars as pl

from farther.curation.rules import CategoryRule
from farther.curation.sources import LabelledImages
from farther.errors import ParameterError, shorten
from farther.tables import Column, Objects, Table
from farther.tables.arguments import instance, whole_number

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
        image_id, dataset, subset: The image.
        fate: `near`, `far`, `farther`, or `removed`.
        rule: The rule that decided: `overlap: spoon → diningtable`, or the reason why none did; by
            reviewers' decision, `decision: removed → person`.
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


#: The reviewers who decided, "" where the rules did.
_REVIEWERS = (
    pl.when(pl.col("decided_by") != "")
    .then(pl.format(", by {}", "decided_by"))
    .otherwise(pl.lit(""))
)

#: The rule that decided, and on which object or by whom.
REASON = (
    pl.when(pl.col("by_rules") != "")
    .then(pl.format("{}{} (by the rules: {})", "rule", _REVIEWERS, "by_rules"))
    .when(pl.col("object_id") != NO_OBJECT)
    .then(pl.format("{} (object {}, {})", "rule", "object_id", "category"))
    .otherwise("rule")
)

#: A frame of rules by category.
_RULES = pl.Schema(
    {"category": pl.String, "rule": pl.String, "kind": pl.String, "precedence": pl.Int64}
)


def decide(
    source: LabelledImages,
    rules: Mapping[str, CategoryRule],
    *,
    subset: str,
    farther: bool,
    empty: Literal["keep", "remove"],
) -> Fates:
    """The fate of each image of a source.

    The rule with the highest precedence among those of the image's objects decides; among equals,
    the first object in the table.

    Args:
        source: Images of one dataset.
        rules: Category → the rule on it.
        subset: The subset that the images are from.
        farther: Whether near and far images alike are `farther`.
        empty: Fate of an image without labelled objects.
    """
    objects = source.objects.frame.select("image_id", "object_id", "category")
    deciding = (
        objects.with_row_index()
        .join(_rules_frame(rules, farther=farther), on="category")
        .sort("precedence", "index")
        .unique("image_id", keep="first", maintain_order=True)
    )
    has_objects = source.shows(np.ones(len(objects), bool))
    images = source.images.frame.select("image_id", "dataset", "file", has_objects=has_objects)
    joined = images.join(deciding, on="image_id", how="left", maintain_order="left")

    distance = "far"
    without_rule = NO_NEAR
    if farther:
        distance = "farther"
        without_rule = NO_OVERLAP
    is_empty = ~pl.col("has_objects")
    is_removed = pl.col("kind").is_not_null() | (is_empty & (empty == "remove"))
    fate = (
        pl.when(pl.col("kind") == "near")
        .then(pl.lit("near"))
        .when(is_removed)
        .then(pl.lit("removed"))
        .otherwise(pl.lit(distance))
    )
    reason_without_rule = pl.when(is_empty).then(pl.lit(EMPTY)).otherwise(pl.lit(without_rule))
    frame = joined.select(
        "image_id",
        "dataset",
        fate.alias("fate"),
        pl.col("rule").fill_null(reason_without_rule),
        pl.col("category").fill_null(""),
        pl.col("object_id").fill_null(NO_OBJECT),
        "file",
        subset=pl.lit(subset),
    )
    return Fates.from_frame(frame)


def _rules_frame(rules: Mapping[str, CategoryRule], *, farther: bool) -> pl.DataFrame:
    """Frame of `_RULES`; for a `farther` split without the rules of kind `near`."""
    rows = []
    for category, rule in rules.items():
        if farther and rule.kind == "near":
            continue
        rows.append(
            {
                "category": category,
                "rule": str(rule),
                "kind": rule.kind,
                "precedence": rule.precedence,
            }
        )
    return pl.DataFrame(rows, schema=_RULES)


def as_published(
    source: LabelledImages, subset: str, distance: str, empty: Literal["keep", "remove"]
) -> Fates:
    """The fate of each image of a split that is taken as its authors published it."""
    fates = decide(source, {}, subset=subset, farther=False, empty=empty)
    is_kept = pl.col("fate") != "removed"
    frame = fates.frame.with_columns(
        fate=pl.when(is_kept).then(pl.lit(distance)).otherwise("fate"),
        rule=pl.when(is_kept).then(pl.lit(PUBLISHED)).otherwise("rule"),
    )
    return fates.with_frame(frame)


def without_undrawn(fates: Fates, distance: str, image_ids: Collection[str]) -> Fates:
    """The fates, with images of a distance removed that are not drawn into its split.

    Args:
        fates: Fates of one source.
        distance: The split's.
        image_ids: Names of the images that are in the split.
    """
    is_undrawn = (pl.col("fate") == distance) & ~pl.col("image_id").is_in(list(image_ids))
    undrawn = pl.when(is_undrawn)
    frame = fates.frame.with_columns(
        fate=undrawn.then(pl.lit("removed")).otherwise("fate"),
        rule=undrawn.then(pl.lit(NOT_DRAWN)).otherwise("rule"),
        category=undrawn.then(pl.lit("")).otherwise("category"),
        object_id=undrawn.then(NO_OBJECT).otherwise("object_id"),
    )
    return fates.with_frame(frame)


def explain(fates: Fates, image_id: str) -> str:
    """The fate of an image and the reason, one sentence per OOD source that has such an image.

    Args:
        fates: The fates of a curated benchmark; see `curate`.
        image_id: An image of an OOD dataset.

    Raises:
        ParameterError: no OOD source has such an image.
    """
    instance(fates, Fates, "fates")
    if not isinstance(image_id, str):
        raise ParameterError(f"image_id: expected the name of an image, found {shorten(image_id)}")
    images = fates.frame.filter(pl.col("image_id") == image_id)
    if not images.height:
        raise ParameterError(f"no image {image_id!r} in the benchmark's OOD sources")
    sentence = pl.format("{} {} {}: {}; {}", "dataset", "subset", "image_id", "fate", REASON)
    return "\n".join(images.select(sentence).to_series())


def reason_of(fates: Fates, row: int) -> str:
    """The rule that decided on an image, and on which object or by whom.

    Args:
        fates: The fates of a curated benchmark; see `curate`.
        row: Row of the image.
    """
    instance(fates, Fates, "fates")
    row = whole_number(row, "row", at_least=0, at_most=len(fates) - 1)
    return fates.frame[row].select(REASON).item()


def category_counts(objects: Objects) -> pl.DataFrame:
    """Number of objects, and of images that show one, per category (FMIYC, Figures 8 and 9).

    Returns:
        `category`, `objects`, `images`; the most frequent category first.
    """
    labelled = objects.frame.filter(~objects.is_unlabelled)
    counts = labelled.group_by("category").agg(
        objects=pl.len(), images=pl.col("image_id").n_unique()
    )
    return counts.sort("objects", "category", descending=[True, False])


def fate_counts(fates: Fates) -> pl.DataFrame:
    """Number of images by source, fate and kind of reason.

    Returns:
        `dataset`, `subset`, `fate`, `reason` (in words), `images`.
    """
    reason = rule_kind().replace(REASONS)
    groups = fates.frame.group_by("dataset", "subset", "fate", reason=reason)
    counts = groups.agg(images=pl.len())
    nearest_first = pl.col("fate").cast(pl.Enum(FATES))
    most_first = -pl.col("images").cast(pl.Int64)
    return counts.sort("dataset", "subset", nearest_first, most_first, "reason")


def rule_kind() -> pl.Expr:
    """Kind of the rule that decided on an image: a key of `REASONS`, or why none decided."""
    return pl.col("rule").str.split(": ").list.first()
