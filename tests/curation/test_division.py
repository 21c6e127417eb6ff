"""Open-set recognition: a dataset whose classes are divided into known and unknown ones."""

from pathlib import Path

import pytest
from tests.support.labelled import labelled

from farther.curation import (
    Categories,
    Division,
    LabelledImages,
    benchmark,
    benchmark_kind,
    curate,
    read_rules,
)
from farther.errors import ParameterError

DIGITS = ("zero", "one", "two", "three")
RULES = """
id_classes: {zero: {}, one: {other: [uno]}, two: {other: [due]}, three: {}}
protocols:
  paper:
    overlap: {other: {one: [single], two: [pair]}}
    near: {other: {three: [four]}}
similar: [[zero, one, two], [two, three]]
"""

#: Classes of the images of each subset.
TRAIN = {"a": ["zero"], "b": ["one"], "c": ["two"], "d": ["three"], "e": ["zero", "two"]}
TEST = {"f": ["zero"], "g": ["three"], "h": ["two"], "i": ["one"], "j": ["three"]}
UNKNOWN = {"unknown": {"dataset": "digits", "subset": "test", "distance": "near"}}


class Tables:
    """Tables of a dataset of digits, and of another one, that were never on disk."""

    def source(self, dataset: str, subset: str) -> LabelledImages:
        if dataset == "other":
            return labelled(
                "other", {"k": ["uno"], "l": ["due"], "m": ["pair"], "n": ["single"], "o": ["four"]}
            )
        return labelled(dataset, TRAIN if subset == "train" else TEST)

    def categories(self, dataset: str) -> Categories:
        return Categories(
            ("uno", "due", "pair", "single", "four") if dataset == "other" else DIGITS
        )


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "digits.yaml"
    path.write_text(RULES)
    return path


def divided(rules, division, **params):
    entry = {"id": "digits", "rules": rules, "division": division, "splits": UNKNOWN, **params}
    return benchmark("digits", entry)


def names(split):
    return sorted(split.images.image_id)


def test_known_classes_are_the_id_classes_and_unknown_ones_an_ood_split_of_the_same_dataset(rules):
    made = curate(divided(rules, {"known": ["zero", "one"]}), Tables())
    assert made.id_classes == ("zero", "one")
    assert made.unknown_classes == ("two", "three")
    assert names(made.splits["test"]) == ["f", "i"]
    assert names(made.splits["unknown"]) == ["g", "h", "j"]


def test_no_image_of_an_unknown_class_is_in_training_and_those_left_out_are_counted(rules):
    made = curate(divided(rules, {"known": ["zero", "one"]}), Tables())
    assert names(made.splits["train"]) == ["a", "b"]  # e shows a known class, and an unknown one
    assert set(made.splits["train"].objects.category) == {"zero", "one"}
    counts = made.counts()
    assert counts["train.images_of_unknown_classes"] == 3
    assert counts["test.images_of_unknown_classes"] == 3
    assert made.seen == []


def test_images_of_known_classes_are_removed_from_the_ood_split_with_the_class_as_the_reason(rules):
    fates = curate(divided(rules, {"known": ["zero", "one"]}), Tables()).fates.frame
    reasons = dict(fates.filter(fate="removed").select("image_id", "rule").iter_rows())
    assert reasons == {"f": "ID class: zero → zero", "i": "ID class: one → one"}


def test_every_split_is_divided_parts_and_shifted_images_too(rules):
    parts = {"train": {"of": "train", "part": 1.0}, "val": "test", "test": "test"}
    shifted = {"c1": {"dataset": "digits_c", "subset": "test", "severity": 1}}
    made = curate(divided(rules, {"known": ["one"]}, subsets=parts, shifted=shifted), Tables())
    for name in ("train", "val", "test", "c1"):
        assert set(made.splits[name].objects.category) == {"one"}


def test_without_a_division_nothing_is_left_out(rules):
    made = curate(benchmark("digits", {"id": "digits", "rules": rules, "splits": {}}), Tables())
    assert names(made.splits["train"]) == sorted(TRAIN)
    assert made.unknown_classes == ()
    assert not [name for name in made.counts() if "unknown_classes" in name]


def test_a_category_of_another_dataset_overlaps_with_known_classes_only(rules):
    splits = {**UNKNOWN, "other": {"dataset": "other", "subset": "all", "distance": "far"}}
    made = curate(divided(rules, {"known": ["zero", "one"]}, splits=splits), Tables())
    # uno is the known class one and single overlaps with it; due, pair and four belong to two and
    # three, now unknown.
    assert names(made.splits["other"]) == ["l", "m", "o"]


def test_groups_of_similar_classes_lose_the_unknown_ones(rules):
    assert read_rules(divided(rules, {"known": ["zero", "one"]})).similar == [["zero", "one"]]
    assert read_rules(divided(rules, {"known": ["zero", "three"]})).similar == []


def test_the_divisions_of_the_profile_stay_what_they_are():
    digits = tuple("0123456789")
    drawn = ["".join(Division(known=6, seed=seed).known_classes(digits)) for seed in range(1, 6)]
    assert drawn == ["136789", "023459", "013469", "123678", "124569"]


def test_a_seed_draws_more_classes_by_adding_to_those_it_drew():
    few = set(Division(known=3, seed=1).known_classes(tuple("012345")))
    more = set(Division(known=4, seed=1).known_classes(tuple("012345")))
    assert few < more


def test_known_classes_keep_the_order_of_the_dataset():
    assert Division(known=("three", "zero")).known_classes(DIGITS) == ("zero", "three")


def test_digits_may_be_written_as_numbers(rules):
    assert Division(known=[7, 0]).known_classes(tuple("0123456789")) == ("0", "7")


@pytest.mark.parametrize(
    ("division", "message"),
    [
        ({"known": 0, "seed": 1}, "0 leaves no known class"),
        ({"known": []}, "an empty list leaves no known class"),
        ({"known": 4, "seed": 1}, "all 4 classes are known, which leaves no unknown class"),
        ({"known": [*DIGITS]}, "all 4 classes are known, which leaves no unknown class"),
        ({"known": 5, "seed": 1}, "5 classes, but there are 4"),
        ({"known": ["one", "eleven"]}, "'eleven' is not a class. Classes: zero, one, two, three"),
        ({"known": ["one", "one"]}, "'one' is listed twice"),
        ({"known": 2}, "give the seed that draws 2 classes, as in seed: 1"),
        ({"known": ["one"], "seed": 1}, "it draws nothing where 'known' lists the classes"),
        (
            {"known": "one"},
            "expected the number of known classes, or a list of their names, found 'one'",
        ),
        (
            {"known": True, "seed": 1},
            "expected the number of known classes, or a list of their names, found True",
        ),
        ({"knwon": 2, "seed": 1}, "knwon"),
    ],
)
def test_a_division_that_cannot_be_is_refused_with_what_to_write(rules, division, message):
    with pytest.raises(ParameterError) as error:
        read_rules(divided(rules, division))
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (
            {"splits": {}},
            "Add to `splits`: unknown: {dataset: digits, subset: test, distance: near}",
        ),
        (
            {"splits": {"u": {**UNKNOWN["unknown"], "assigned": "as published"}}},
            "leave `assigned` out",
        ),
        ({"splits": {"u": {**UNKNOWN["unknown"], "distance": "far"}}}, "write `distance: near`"),
        ({"subsets": {"train": {"dataset": "other", "subset": "all"}}}, "write `others: remove`"),
    ],
)
def test_splits_that_do_not_fit_a_division_are_refused(rules, params, message):
    with pytest.raises(ParameterError) as error:
        divided(rules, {"known": 2, "seed": 1}, **params)
    assert message in str(error.value)


def test_a_benchmark_with_a_division_is_open_set_recognition_unless_it_says_otherwise(rules):
    assert divided(rules, {"known": 2, "seed": 1}).task == "osr"
    assert divided(rules, {"known": 2, "seed": 1}, kind="ood").task == "ood"
    plain = {"id": "digits", "rules": rules, "splits": {}}
    assert benchmark("digits", plain).task == "ood"
    for entry in (
        {"division": {"known": 2}},
        {"division": {"known": 2}, "kind": "ood"},
        {},
        {"kind": "ad"},
    ):
        expected = entry.get("kind") or ("osr" if "division" in entry else "ood")
        assert benchmark_kind(entry) == expected
