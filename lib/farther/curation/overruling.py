"""How people's decisions change what the rules made of images."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from farther.curation.decisions import Decision, Decisions, ImageKey
from farther.curation.fates import NO_OBJECT, Fates, why

#: Starts the `rule` of an image whose fate people decided.
DECISION = "decision"

#: The `rule` of an image that may enter a split only when people decided so, and did not yet.
NOT_REVIEWED = "candidate: not reviewed yet"


@dataclass(frozen=True)
class JointDecision:
    """What several reviewers' decisions come to.

    Args:
        fate: What more than half of them make of the image; "" without such a majority: the rules decide then.
        rule: What stands in `Fates.rule`: `decision: removed → person`.
        reviewers: The majority, sorted: `ann, bob`.
        disagree: Whether any two of the reviewers make different things of the image.
    """

    fate: str
    rule: str
    reviewers: str
    disagree: bool


def outcome(decision: Decision, kept: str) -> str:
    """The fate that one decision gives an image.

    Args:
        decision: What a reviewer said.
        kept: The image's fate if no ID class and no overlap were labelled: `near`, `far` or `farther`. A `farther`
            split takes near and far images alike, so there both are `farther`.
    """
    if decision.decision == "remove":
        return "removed"
    return kept if decision.decision == "keep" or kept == "farther" else decision.decision


def joint_decision(decisions: Mapping[str, Decision], kept: str) -> JointDecision:
    """What more than half of an image's reviewers make of it.

    Args:
        decisions: Reviewer → decision; not empty.
        kept: See `outcome`.
    """
    outcomes = {reviewer: outcome(decision, kept) for reviewer, decision in decisions.items()}
    fate, votes = Counter(outcomes.values()).most_common(1)[0]
    disagree = votes < len(outcomes)
    if 2 * votes <= len(outcomes):
        return JointDecision("", "", "", disagree)
    winners = sorted(reviewer for reviewer, made in outcomes.items() if made == fate)
    classes = sorted({decisions[reviewer].id_class for reviewer in winners} - {""})
    rule = f"{DECISION}: {fate}" + (f" → {', '.join(classes)}" if classes else "")
    return JointDecision(fate, rule, ", ".join(winners), disagree)


def overrule(fates: Fates, kept: np.ndarray, decisions: Decisions) -> tuple[Fates, list[str]]:
    """The fates of a source's images after people decided.

    Args:
        fates: What the rules made of them; one dataset and subset.
        kept: ndarray of shape (number of images,), str: see `outcome`.
        decisions: On images of this and other sources.

    Returns:
        The fates, and in plain words the images whose reviewers have no majority.
    """
    columns = {name: values.copy() for name, values in fates.columns().items()}
    undecided = []
    for row in _rows(fates, decisions.standing):
        key = key_of(fates, row)
        found = joint_decision(decisions.standing[key], kept[row])
        if not found.fate:
            said = ", ".join(f"{reviewer}: {one}" for reviewer, one in sorted(decisions.standing[key].items()))
            undecided.append(f"{key}: no majority ({said}), so the rules decide: {fates.fate[row]}")
            continue
        columns["by_rules"][row] = f"{fates.fate[row]}; {why(fates, row)}"
        columns["fate"][row] = found.fate
        columns["rule"][row] = found.rule
        columns["decided_by"][row] = found.reviewers
        columns["category"][row] = ""
        columns["object_id"][row] = NO_OBJECT
    return Fates(**columns), undecided


def withhold_unreviewed(fates: Fates) -> Fates:
    """The fates of images of which those that nobody decided on enter no split.

    Args:
        fates: What rules and people made of them.
    """
    columns = {name: values.copy() for name, values in fates.columns().items()}
    for row in np.flatnonzero((fates.decided_by == "") & (fates.fate != "removed")).tolist():
        columns["by_rules"][row] = f"{fates.fate[row]}; {why(fates, row)}"
        columns["fate"][row] = "removed"
        columns["rule"][row] = NOT_REVIEWED
        columns["category"][row] = ""
        columns["object_id"][row] = NO_OBJECT
    return Fates(**columns)


def key_of(fates: Fates, row: int) -> ImageKey:
    """Names the image of a row."""
    return ImageKey(fates.dataset[row], fates.subset[row], fates.image_id[row])


def _rows(fates: Fates, images: Iterable[ImageKey]) -> list[int]:
    """The rows of images, sorted; those of other sources are left out."""
    if not len(fates):
        return []
    source = fates.dataset[0], fates.subset[0]
    wanted = {key.image_id for key in images if (key.dataset, key.subset) == source}
    return [row for row, image_id in enumerate(fates.image_id) if image_id in wanted] if wanted else []
