"""Fates of images after reviewers' decisions, which override the rules."""

from __future__ import annotations

import numpy as np
import polars as pl

from farther.curation.decisions import IMAGE, Decisions
from farther.curation.fates import NO_OBJECT, REASON, Fates

#: The `rule` of an image that enters a split only after a review and is not reviewed yet.
NOT_REVIEWED = "candidate: not reviewed yet"


def votes(decisions: Decisions, fates: Fates, kept: np.ndarray) -> pl.DataFrame:
    """The fate that each reviewer's current decision gives an image.

    Args:
        decisions: On images of these and other sources.
        fates: The fates by the rules.
        kept: ndarray of shape (number of images,), str: an image's fate if no ID class and no
            overlap were labelled: `near`, `far` or `farther`. A `farther` split takes near and far
            images alike, so there both are `farther`.

    Returns:
        The columns of `Decisions.current`, `by_rules`, `fate`, and `image`: its row in `fates`; by
        image and reviewer.
    """
    images = fates.frame.select(
        *IMAGE, by_rules="fate", kept=pl.Series(kept, dtype=pl.String)
    ).with_row_index("image")
    decision = pl.col("decision")
    fate = (
        pl.when(decision == "remove")
        .then(pl.lit("removed"))
        .when((decision == "keep") | (pl.col("kept") == "farther"))
        .then("kept")
        .otherwise(decision)
    )
    return (
        images.join(decisions.current, on=IMAGE).with_columns(fate=fate).sort("image", "reviewer")
    )


def joint_decisions(votes: pl.DataFrame) -> pl.DataFrame:
    """The fate of each image by more than half of its reviewers.

    Args:
        votes: Last decision of each reviewer on each image, as `votes` gives them.

    Returns:
        `image`, `fate` ("" without a majority: the rules decide then), `rule` (value of
        `Fates.rule`: `decision: removed → person`), `reviewers` (the majority, sorted: `ann, bob`),
        and `disagree`: two decisions give the image different fates.
    """
    classes = pl.col("id_class").filter(pl.col("id_class") != "").unique().sort()
    parties = votes.group_by("image", "fate", maintain_order=True).agg(
        count=pl.len(), reviewers=pl.col("reviewer").str.join(", "), classes=classes.str.join(", ")
    )
    shown = (
        pl.when(pl.col("classes") != "").then(pl.format(" → {}", "classes")).otherwise(pl.lit(""))
    )
    parties = parties.with_columns(
        rule=pl.format("decision: {}{}", "fate", shown), total=pl.col("count").sum().over("image")
    )
    wins = 2 * pl.col("count") > pl.col("total")
    won = [
        pl.col(name).filter(wins).first().fill_null("").alias(name)
        for name in ("fate", "rule", "reviewers")
    ]
    return parties.group_by("image", maintain_order=True).agg(*won, disagree=pl.len() > 1)


def overrule(fates: Fates, kept: np.ndarray, decisions: Decisions) -> tuple[Fates, list[str]]:
    """The fates of a source's images after reviewers' decisions.

    Args:
        fates: The fates by the rules; one dataset and subset.
        kept, decisions: See `votes`.

    Returns:
        The fates, and messages about images whose reviewers have no majority.
    """
    said = votes(decisions, fates, kept)
    joint = joint_decisions(said)
    worded = (
        pl.when(pl.col("id_class") != "")
        .then(pl.format("{} → {}", "decision", "id_class"))
        .otherwise("decision")
    )
    undecided = (
        said.join(joint.filter(pl.col("fate") == ""), on="image", how="semi")
        .group_by("image", *IMAGE, "by_rules", maintain_order=True)
        .agg(said=pl.format("{}: {}", "reviewer", worded).str.join(", "))
        .select(
            pl.format(
                "{} {} {}: no majority ({}), so the rules decide: {}", *IMAGE, "said", "by_rules"
            )
        )
    )
    images = fates.frame.select("image_id").with_row_index("image")
    changes = joint.filter(pl.col("fate") != "").join(images, on="image")
    return _changed(fates, changes.select("image_id", "fate", "rule", decided_by="reviewers")), (
        undecided.to_series().to_list()
    )


def withhold_unreviewed(fates: Fates) -> Fates:
    """The fates with the images removed that are not reviewed yet."""
    unreviewed = fates.frame.filter(pl.col("decided_by") == "", pl.col("fate") != "removed")
    changes = unreviewed.select(
        "image_id",
        fate=pl.lit("removed"),
        rule=pl.lit(NOT_REVIEWED),
        decided_by=pl.lit("", pl.String),
    )
    return _changed(fates, changes)


def _changed(fates: Fates, changes: pl.DataFrame) -> Fates:
    """Fates of one source with some replaced; `by_rules` then tells the fate and reason before."""
    joined = fates.frame.join(
        changes, on="image_id", how="left", suffix="_new", maintain_order="left"
    )
    changed = pl.when(pl.col("fate_new").is_not_null())
    return fates.with_frame(
        joined.with_columns(
            *(
                pl.col(f"{name}_new").fill_null(pl.col(name)).alias(name)
                for name in ("fate", "rule", "decided_by")
            ),
            category=changed.then(pl.lit("")).otherwise("category"),
            object_id=changed.then(NO_OBJECT).otherwise("object_id"),
            by_rules=changed.then(pl.format("{}; {}", "fate", REASON)).otherwise("by_rules"),
        ).select(fates.frame.columns)
    )
