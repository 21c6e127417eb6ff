"""Majority votes of reviewers."""

import random
from datetime import UTC, datetime, timedelta

import polars as pl
from tests.support.labelled import labelled

from farther.curation import ReviewDecisions
from farther.curation.decisions import LINES
from farther.curation.fates import decide
from farther.curation.review_votes import apply_decisions, joint_decisions


def test_images_without_a_majority_are_listed_in_the_order_of_the_images():
    names = [f"{number:02d}" for number in random.Random(5).sample(range(60), 60)]
    source = labelled("photos", {name: ["Kite"] for name in names})
    fates = decide(source, {}, subset="val", farther=False, empty="keep")
    lines = []
    for second, name in enumerate(names):
        for reviewer, decision in (("ann", "far"), ("bob", "near")):
            line = {
                "row": len(lines),
                "time": datetime(2026, 11, 21, tzinfo=UTC) + timedelta(seconds=second),
                "reviewer": reviewer,
                "dataset": "photos",
                "subset": "val",
                "image_id": name,
                "decision": decision,
                "id_class": "",
                "note": "",
            }
            lines.append(line)
    decisions = ReviewDecisions(pl.DataFrame(lines[::-1], schema=LINES))
    _, undecided = apply_decisions(fates, fates.fate, decisions)
    problem = "no majority (ann: far, bob: near), so the rules decide: far"
    assert undecided == [f"photos val {name}: {problem}" for name in names]


def random_votes() -> list[dict]:
    """Votes of one to four reviewers on each of 60 images."""
    chance = random.Random(3)
    votes = []
    for image in range(60):
        for reviewer in ("ann", "bob", "eve", "joe")[: chance.randint(1, 4)]:
            fate = chance.choice(("removed", "near", "kept"))
            id_class = chance.choice(("cat", "dog")) if fate == "removed" else ""
            vote = {"image": image, "reviewer": reviewer, "fate": fate, "id_class": id_class}
            votes.append(vote)
    return votes


def test_a_joint_decision_is_that_of_more_than_half_of_the_reviewers():
    votes = random_votes()
    decisions = joint_decisions(pl.DataFrame(votes))
    assert decisions["image"].to_list() == list(range(60))
    assert decisions["disagree"].sum() > 20
    for decision in decisions.to_dicts():
        votes_on_image = [vote for vote in votes if vote["image"] == decision["image"]]
        fates = [vote["fate"] for vote in votes_on_image]
        assert decision["disagree"] is (len(set(fates)) > 1)
        majority = [fate for fate in fates if 2 * fates.count(fate) > len(fates)]
        if not majority:
            assert (decision["fate"], decision["rule"], decision["reviewers"]) == ("", "", "")
            continue
        fate = majority[0]
        winners = [vote for vote in votes_on_image if vote["fate"] == fate]
        classes = ", ".join(sorted({vote["id_class"] for vote in winners} - {""}))
        arrow = f" → {classes}" if classes else ""
        assert decision["fate"] == fate
        assert decision["reviewers"] == ", ".join(vote["reviewer"] for vote in winners)
        assert decision["rule"] == f"decision: {fate}{arrow}"
