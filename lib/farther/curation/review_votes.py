"""Majority votes of reviewers on images, which override the fates by the rules."""

from __future__ import annotations

import numpy as np
import polars as pl

from farther.curation.decisions import IMAGE, ReviewDecisions
from farther.curation.fates import NO_OBJECT, REASON, Fates
from farther.errors import DataError
from farther.tables.arguments import instance, texts

#: The `rule` of an image that enters a split only after a review and is not reviewed yet.
NOT_REVIEWED = "candidate: not reviewed yet"

#: Columns of `Fates` that a vote replaces.
_REPLACED = ("fate", "rule", "decided_by")


def votes(
    decisions: ReviewDecisions, fates: Fates, fate_without_overlap: np.ndarray
) -> pl.DataFrame:
    """The fate that each reviewer's current decision gives an image.

    Args:
        decisions: Decisions on the images of these sources, and perhaps of others.
        fates: The fates by the rules.
        fate_without_overlap: ndarray of shape (number of images,), str: an image's fate if no ID
            class and no overlap were labelled: `near`, `far` or `farther`. A `farther` split takes
            near and far images alike, so there both are `farther`.

    Returns:
        The columns of `ReviewDecisions.current`, `by_rules`, `fate`, and `image`: its row in
        `fates`; by image and reviewer.
    """
    instance(decisions, ReviewDecisions, "decisions")
    instance(fates, Fates, "fates")
    fate_names = texts(fate_without_overlap, "fate_without_overlap", length=len(fates))
    without_overlap = pl.Series(fate_names, dtype=pl.String)
    images = fates.frame.select(*IMAGE, by_rules="fate", without_overlap=without_overlap)
    reviewed = images.with_row_index("image").join(decisions.current, on=IMAGE)
    decision = pl.col("decision")
    fate = (
        pl.when(decision == "remove")
        .then(pl.lit("removed"))
        .when((decision == "keep") | (pl.col("without_overlap") == "farther"))
        .then("without_overlap")
        .otherwise(decision)
    )
    return reviewed.with_columns(fate=fate).sort("image", "reviewer")


def joint_decisions(votes: pl.DataFrame) -> pl.DataFrame:
    """The fate of each image by more than half of its reviewers.

    Args:
        votes: Last decision of each reviewer on each image, see `votes`.

    Returns:
        `image`, `fate` ("" without a majority: the rules decide then), `rule` (value of
        `Fates.rule`: `decision: removed → person`), `reviewers` (the majority, sorted: `ann, bob`),
        and `disagree`: two decisions give the image different fates.

    Raises:
        DataError: it is no such frame; names the column that is absent.
    """
    instance(votes, pl.DataFrame, "votes")
    for name in ("image", "reviewer", "fate", "id_class"):
        if name not in votes.columns:
            raise DataError(
                f"the column {name!r} is absent: give what `votes` returns", field="votes"
            )
    classes = pl.col("id_class").filter(pl.col("id_class") != "").unique().sort()
    parties = votes.group_by("image", "fate", maintain_order=True).agg(
        count=pl.len(), reviewers=pl.col("reviewer").str.join(", "), classes=classes.str.join(", ")
    )
    arrow_and_classes = (
        pl.when(pl.col("classes") != "").then(pl.format(" → {}", "classes")).otherwise(pl.lit(""))
    )
    parties = parties.with_columns(
        rule=pl.format("decision: {}{}", "fate", arrow_and_classes),
        total=pl.col("count").sum().over("image"),
    )

    has_majority = 2 * pl.col("count") > pl.col("total")
    columns = pl.col("fate", "rule", "reviewers")
    of_majority = columns.filter(has_majority).first().fill_null("")
    return parties.group_by("image", maintain_order=True).agg(of_majority, disagree=pl.len() > 1)


def apply_decisions(
    fates: Fates, fate_without_overlap: np.ndarray, decisions: ReviewDecisions
) -> tuple[Fates, list[str]]:
    """The fates of a source's images after reviewers' decisions.

    Args:
        fates: The fates by the rules; one dataset and subset.
        fate_without_overlap, decisions: See `votes`.

    Returns:
        The fates, and messages about images whose reviewers have no majority.
    """
    vote_per_reviewer = votes(decisions, fates, fate_without_overlap)
    joint = joint_decisions(vote_per_reviewer)
    images = fates.frame.select("image_id").with_row_index("image")
    changes = joint.filter(pl.col("fate") != "").join(images, on="image")
    changed = _replace(fates, changes.select("image_id", "fate", "rule", decided_by="reviewers"))
    return changed, _undecided(vote_per_reviewer, joint)


def withhold_unreviewed(fates: Fates) -> Fates:
    """The fates with the images removed that are not reviewed yet."""
    unreviewed = fates.frame.filter(pl.col("decided_by") == "", pl.col("fate") != "removed")
    changes = unreviewed.select(
        "image_id",
        fate=pl.lit("removed"),
        rule=pl.lit(NOT_REVIEWED),
        decided_by=pl.lit("", pl.String),
    )
    return _replace(fates, changes)


def _undecided(vote_per_reviewer: pl.DataFrame, joint: pl.DataFrame) -> list[str]:
    """Messages about images whose reviewers have no majority."""
    no_majority = joint.filter(pl.col("fate") == "")
    contested = vote_per_reviewer.join(no_majority, on="image", how="semi")
    decision = (
        pl.when(pl.col("id_class") != "")
        .then(pl.format("{} → {}", "decision", "id_class"))
        .otherwise("decision")
    )
    by_image = contested.group_by("image", *IMAGE, "by_rules", maintain_order=True).agg(
        decisions=pl.format("{}: {}", "reviewer", decision).str.join(", ")
    )
    message = pl.format(
        "{} {} {}: no majority ({}), so the rules decide: {}", *IMAGE, "decisions", "by_rules"
    )
    return by_image.select(message).to_series().to_list()


def _replace(fates: Fates, changes: pl.DataFrame) -> Fates:
    """Fates of one source with some replaced; `by_rules` then has the fate and reason before."""
    joined = fates.frame.join(
        changes, on="image_id", how="left", suffix="_new", maintain_order="left"
    )
    is_changed = pl.col("fate_new").is_not_null()
    columns = {name: pl.col(f"{name}_new").fill_null(pl.col(name)) for name in _REPLACED}
    replaced = joined.with_columns(
        **columns,
        category=pl.when(is_changed).then(pl.lit("")).otherwise("category"),
        object_id=pl.when(is_changed).then(NO_OBJECT).otherwise("object_id"),
        by_rules=pl.when(is_changed)
        .then(pl.format("{}; {}", "fate", REASON))
        .otherwise("by_rules"),
    )
    return fates.with_frame(replaced.select(fates.frame.columns))
