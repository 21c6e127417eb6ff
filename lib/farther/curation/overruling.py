"""Fates of images after reviewers' decisions, which override the rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from farther.curation.decisions import Decision, Decisions, ImageKey
from farther.curation.fates import NO_OBJECT, REASON, Fates

#: Prefix of the `rule` of an image whose fate reviewers decided.
DECISION = "decision"

#: The `rule` of an image that enters a split only after a review and is not reviewed yet.
NOT_REVIEWED = "candidate: not reviewed yet"


@dataclass(frozen=True)
class JointDecision:
    """Result of several reviewers' decisions on an image.

    Args:
        fate: The fate by more than half of the decisions; "" without a majority: the rules decide then.
        rule: Value of `Fates.rule`: `decision: removed → person`.
        reviewers: The majority, sorted: `ann, bob`.
        disagree: True if two decisions give the image different fates.
    """

    fate: str
    rule: str
    reviewers: str
    disagree: bool


def decided_fate(decision: Decision, kept: str) -> str:
    """The fate that one decision gives an image.

    Args:
        decision: A reviewer's decision.
        kept: The image's fate if no ID class and no overlap were labelled: `near`, `far` or `farther`. A `farther`
            split takes near and far images alike, so there both are `farther`.
    """
    if decision.decision == "remove":
        return "removed"
    return kept if decision.decision == "keep" or kept == "farther" else decision.decision


def joint_decision(decisions: Mapping[str, Decision], kept: str) -> JointDecision:
    """The fate of an image by more than half of its reviewers.

    Args:
        decisions: Reviewer → decision; not empty.
        kept: See `decided_fate`.
    """
    fates = {reviewer: decided_fate(decision, kept) for reviewer, decision in decisions.items()}
    fate, votes = Counter(fates.values()).most_common(1)[0]
    disagree = votes < len(fates)
    if 2 * votes <= len(fates):
        return JointDecision("", "", "", disagree)
    winners = sorted(reviewer for reviewer, one in fates.items() if one == fate)
    classes = sorted({decisions[reviewer].id_class for reviewer in winners} - {""})
    rule = f"{DECISION}: {fate}" + (f" → {', '.join(classes)}" if classes else "")
    return JointDecision(fate, rule, ", ".join(winners), disagree)


def overrule(fates: Fates, kept: np.ndarray, decisions: Decisions) -> tuple[Fates, list[str]]:
    """The fates of a source's images after reviewers' decisions.

    Args:
        fates: The fates by the rules; one dataset and subset.
        kept: ndarray of shape (number of images,), str: see `decided_fate`.
        decisions: On images of this and other sources.

    Returns:
        The fates, and messages about images whose reviewers have no majority.
    """
    changes, undecided = [], []
    decided = {(*key,): by_reviewer for key, by_reviewer in decisions.current.items()}
    rows = fates.frame.with_columns(kept=pl.Series(kept, dtype=pl.String)).join(
        pl.DataFrame(list(decided), schema=dict.fromkeys(ImageKey._fields, pl.String), orient="row"),
        on=ImageKey._fields,
        how="semi",
        maintain_order="left",
    )
    for row in rows.iter_rows(named=True):
        key = ImageKey(row["dataset"], row["subset"], row["image_id"])
        found = joint_decision(decided[key], row["kept"])
        if found.fate:
            changes.append((key.image_id, found.fate, found.rule, found.reviewers))
            continue
        votes = ", ".join(f"{reviewer}: {one}" for reviewer, one in sorted(decided[key].items()))
        undecided.append(f"{key}: no majority ({votes}), so the rules decide: {row['fate']}")
    return _changed(fates, pl.DataFrame(changes, schema=_CHANGES, orient="row")), undecided


def withhold_unreviewed(fates: Fates) -> Fates:
    """The fates with the images removed that are not reviewed yet."""
    unreviewed = fates.frame.filter(pl.col("decided_by") == "", pl.col("fate") != "removed")
    changes = unreviewed.select(
        "image_id", fate=pl.lit("removed"), rule=pl.lit(NOT_REVIEWED), decided_by=pl.lit("", pl.String)
    )
    return _changed(fates, changes)


#: Image of a source, and the values that replace those by the rules.
_CHANGES = dict.fromkeys(("image_id", "fate", "rule", "decided_by"), pl.String)


def _changed(fates: Fates, changes: pl.DataFrame) -> Fates:
    """Fates of one source with some replaced; `by_rules` then tells the fate and reason before."""
    joined = fates.frame.join(changes, on="image_id", how="left", suffix="_new", maintain_order="left")
    changed = pl.when(pl.col("fate_new").is_not_null())
    return fates.with_frame(
        joined.with_columns(
            pl.col("fate_new").fill_null(pl.col("fate")).alias("fate"),
            pl.col("rule_new").fill_null(pl.col("rule")).alias("rule"),
            pl.col("decided_by_new").fill_null(pl.col("decided_by")).alias("decided_by"),
            category=changed.then(pl.lit("")).otherwise("category"),
            object_id=changed.then(NO_OBJECT).otherwise("object_id"),
            by_rules=changed.then(pl.format("{}; {}", "fate", REASON)).otherwise("by_rules"),
        ).select(fates.frame.columns)
    )
