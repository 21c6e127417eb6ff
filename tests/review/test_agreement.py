"""Cohen's κ, compared with a worked example."""

import polars as pl
import pytest

from farther.review import Agreement, cohen_kappa
from farther.review.agreement import agreements


def test_kappa_of_a_worked_example():
    # 50 items: both yes 20, both no 15, yes/no 5, no/yes 10. p_o = 0.7, p_e = 0.5 · 0.6 + 0.5 · 0.4
    # = 0.5
    first = ["yes"] * 20 + ["no"] * 15 + ["yes"] * 5 + ["no"] * 10
    second = ["yes"] * 20 + ["no"] * 15 + ["no"] * 5 + ["yes"] * 10
    assert cohen_kappa(first, second) == pytest.approx(0.4)


def test_kappa_of_two_who_always_say_the_same_one_thing_is_not_defined():
    assert cohen_kappa(["far"] * 3, ["far"] * 3) is None
    assert cohen_kappa([], []) is None


def test_only_pairs_that_share_an_image_are_compared():
    rows = [
        (0, "ann", "near"),
        (0, "bob", "near"),
        (1, "ann", "far"),
        (1, "bob", "removed"),
        (2, "cy", "far"),
    ]
    votes = pl.DataFrame(rows, schema=["image", "reviewer", "fate"], orient="row")
    # p_o = 1/2; by chance near·near = 1/2·1/2 = 1/4; (1/2 - 1/4) / (3/4) = 1/3
    assert agreements(votes) == [Agreement("ann", "bob", 2, 1, pytest.approx(1 / 3))]
