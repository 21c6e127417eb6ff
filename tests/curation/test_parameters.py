"""Parameters of a benchmark: what is refused, and in which words."""

from datetime import UTC, datetime

import polars as pl
import pytest

from farther.curation import (
    Categories,
    Decision,
    ReviewDecisions,
    Rules,
    TablesFolder,
    benchmark,
    benchmark_kind,
    curate,
    fates_by_rules,
    read_rules,
    subsets_used,
    time_after,
)
from farther.errors import FartherError, ParameterError

NEAR = {"dataset": "coco", "subset": "val", "distance": "near"}

C3 = {"dataset": "voc_shifted", "subset": "c3", "severity": 3}


def params(**changes):
    return {"id": "voc", "rules": "voc.yaml", "splits": {"coco_near": NEAR}, **changes}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"split": {}}, "unknown parameter 'split'. Known: id, rules, splits"),
        ({"empty": "drop"}, "parameter 'empty': .*'keep' or 'remove', found 'drop'"),
        (
            {"splits": {"x": {**NEAR, "distance": "close"}}},
            "parameter 'splits.x.distance': .*found 'close'",
        ),
        (
            {"splits": {"x": {**NEAR, "rules": []}}},
            "unknown parameter 'splits.x.rules'. Known: dataset, subset",
        ),
        (
            {"splits": {"x": "coco"}},
            "'splits.x': expected a mapping with dataset, subset, .*, found 'coco'",
        ),
        ({"splits": {"../x": NEAR}}, "split name '../x'"),
        (
            {"most": {"trian": 5}},
            r"most: \['trian'\] are neither ID nor OOD splits. Known: train, val, test",
        ),
        ({"most": {"train": 0}}, "most"),
        ({"splits": {"test": NEAR}}, r"\['test'\] name both an ID split and an OOD split"),
        ({"shifted": {"test": C3}}, r"\['test'\] name both an ID split and a shifted split"),
        (
            {"shifted": {"coco_near": C3}},
            r"\['coco_near'\] name both an OOD split and a shifted split",
        ),
        (
            {"shifted": {"c3": C3}, "shifted_val": {"c3": C3}},
            r"\['c3'\] name both a shifted split and a shifted validation split",
        ),
        ({"shifted": {"c3": {**C3, "severity": 0}}}, "parameter 'shifted.c3.severity'"),
        (
            {"shifted": {"c3": "voc_shifted"}},
            "'shifted.c3': expected a mapping with dataset, subset, .*, found 'voc_shifted'",
        ),
        ({"pseudo_ood": {"dataset": "x"}}, "parameter 'pseudo_ood.subset' is missing"),
        (
            {"subsets": {"train": {"of": "all", "part": 1.5}}},
            "parameter 'subsets.train.part': .*less than or equal to 1",
        ),
        (
            {"subsets": {"train": {"of": "all", "part": 0.8}, "val": {"of": "all", "part": 0.3}}},
            "subsets: the parts of 'all' add up to 1.1, more than 1",
        ),
        (
            {
                "subsets": {
                    "train": {"of": "all", "part": 0.5},
                    "val": {"of": "all", "part": 0.5, "together": "(a)"},
                }
            },
            "subsets: 'together' differs between parts of 'all'",
        ),
        (
            {"subsets": {"train": {"of": "all", "part": 0.5, "together": "a"}}},
            "together: expected one group .*found 0",
        ),
        ({"subsets": {"test": {"dataset": "x"}}}, "parameter 'subsets.test.subset' is missing"),
        (
            {"splits": {"x": {**NEAR, "rest_of": "y"}}},
            "split 'x': rest_of: no other OOD split is called 'y'. Known: none",
        ),
        (
            {"splits": {"x": {**NEAR, "rest_of": "y"}, "y": {**NEAR, "rest_of": "x"}}},
            "split 'x': rest_of: split 'y' is itself a rest of 'x'",
        ),
        (
            {
                "splits": {"y": NEAR, "x": {**NEAR, "distance": "far", "rest_of": "y"}},
                "most": {"y": 5},
            },
            "split 'x': rest_of: split 'y' takes near images of coco val; "
            "write the same dataset, subset, distance",
        ),
        (
            {"splits": {"y": NEAR, "x": {**NEAR, "rest_of": "y"}}},
            "split 'x': rest_of: split 'y' leaves no image; write its number of images in `most`",
        ),
        (
            {"splits": {"x": {**NEAR, "candidates": "c" * 300}}},
            "'splits.x.candidates': the path is too long:",
        ),
        ({"decisions": "a/" * 2000}, "'decisions': the path is too long:"),
        (
            {"splits": {"x": {**NEAR, "pairs": {"of": "x"}}}},
            "pairs: of: no other split is called 'x'. Known: train, val",
        ),
        (
            {"splits": {"x": {**NEAR, "pairs": {"of": "val", "name": "a"}}}},
            "expected one group in parentheses, found 0",
        ),
        (
            {"splits": {"x": {**NEAR, "pairs": {"of": "val", "name": "("}}}},
            "not a regular expression",
        ),
    ],
)
def test_a_wrong_parameter_is_refused_in_plain_words(changes, message):
    with pytest.raises(ParameterError, match=message):
        benchmark("voc", params(**changes))


def test_an_empty_entry_is_refused_by_what_it_lacks():
    with pytest.raises(ParameterError, match="benchmark 'voc': parameter 'id' is missing"):
        benchmark("voc", None)


@pytest.mark.parametrize("distance", ["near", "farther"])
def test_two_splits_that_could_share_an_image_are_refused(distance):
    splits = {"a": NEAR, "b": {**NEAR, "distance": distance}}
    with pytest.raises(
        ParameterError, match="splits 'a' and 'b' both take near images of coco val"
    ):
        benchmark("voc", params(splits=splits))


def test_id_splits_are_train_val_and_test_unless_said_otherwise():
    assert benchmark("voc", params()).subsets == {"train": "train", "val": "val", "test": "test"}


def test_benchmarks_use_the_subsets_of_their_splits_and_of_their_id_dataset():
    pets = {"b": {"dataset": "coco", "subset": "train", "distance": "far"}}
    benchmarks = {"voc": params(), "pets": params(id="pets", subsets={"test": "all"}, splits=pets)}
    assert subsets_used(benchmarks) == {
        "voc": {"train", "val", "test"},
        "pets": {"all"},
        "coco": {"val", "train"},
    }


def test_the_test_splits_are_those_that_are_not_for_validation():
    splits = {"a": NEAR, "b": {**NEAR, "distance": "far", "use": "validation"}}
    assert benchmark("voc", params(splits=splits)).test_splits == ["a"]


def test_roles_name_the_splits_that_are_not_those_of_the_id_dataset():
    blank = {"dataset": "voc_blank", "subset": "blank"}
    splits = {"coco_near": {**NEAR, "pairs": {"of": "test"}}}
    found = benchmark(
        "voc",
        params(splits=splits, shifted={"c3": C3, "c5": {**C3, "severity": 5}}, pseudo_ood=blank),
    )
    assert found.roles() == {
        "test": ["coco_near"],
        "distance": {"coco_near": "near"},
        "shifted": {"c3": 3, "c5": 5},
        "pseudo_ood": "pseudo_ood",
        "pairs": {"coco_near": {"of": "test", "name": "(.*)", "by": "image_id"}},
    }
    assert list(found.derived_splits) == ["c3", "c5", "pseudo_ood"]
    assert subsets_used({"voc": params(shifted={"c3": C3}, pseudo_ood=blank)})["voc_blank"] == {
        "blank"
    }
    assert benchmark("voc", params()).roles() == {
        **found.roles(),
        "shifted": {},
        "pseudo_ood": None,
        "pairs": {},
    }


def test_splits_without_images_are_not_tested():
    splits = {"a": {**NEAR, "pairs": {"of": "test"}}, "b": {**NEAR, "distance": "far"}}
    roles = benchmark("voc", params(splits=splits)).roles(empty=["a"])
    assert roles["test"] == ["b"]
    assert roles["distance"] == {"b": "far"}
    assert roles["pairs"] == {}


def test_two_splits_cannot_both_be_one_published_split():
    split = {"dataset": "d", "subset": "s", "assigned": "as published"}
    splits = {"one": {**split, "distance": "near"}, "two": {**split, "distance": "far"}}
    with pytest.raises(ParameterError, match="both take"):
        benchmark("x", {"id": "voc", "rules": "rules.yaml", "splits": splits})


def test_parts_follow_each_other_within_their_own_subset():
    subsets = {
        "train": {"of": "all", "part": 0.5},
        "val": {"of": "more", "part": 0.25},
        "test": {"of": "all", "part": 0.25},
        "late": {"of": "more", "part": 0.75},
        "whole": "rest",
    }
    splits = {"kites": {"dataset": "photos", "subset": "all", "distance": "farther"}}
    for entries in (subsets, dict(reversed(subsets.items()))):
        params = {"id": "id", "rules": "rules.yaml", "splits": splits, "subsets": entries}
        found = benchmark("b", params)
        shares = {name: found.shares(name) for name in subsets}
        assert shares == {
            "train": (0, 0.5),
            "val": (0, 0.25),
            "test": (0.5, 0.75),
            "late": (0.25, 1),
            "whole": (0, 1),
        }


@pytest.mark.parametrize(
    "call",
    [
        lambda: benchmark("b", ["cat"]),
        lambda: benchmark("b", "cat"),
        lambda: benchmark_kind(None),
        lambda: subsets_used(["b"]),
        lambda: curate({"id": "d"}, TablesFolder("tables")),
        lambda: curate(benchmark("b", params()), "tables"),
        lambda: fates_by_rules({"id": "d"}, TablesFolder("tables"), None),
        lambda: read_rules({"rules": "rules.yaml"}),
        lambda: Rules(None),
        lambda: time_after("2026-11-21"),
        lambda: time_after(datetime(2026, 11, 21)),
        lambda: ReviewDecisions([{"reviewer": "ann"}]),
        lambda: ReviewDecisions(pl.DataFrame({"reviewer": ["ann"]})),
        lambda: Decision("2026", "ann", "d", "val", "a", "keep"),
        lambda: Decision(datetime(2026, 11, 21, tzinfo=UTC), "ann", "d", "val", 4, "keep"),
        lambda: Categories("cat"),
        lambda: Categories(("cat",), {"cat": "animal"}),
    ],
)
def test_arguments_of_other_types_are_refused(call):
    with pytest.raises(FartherError, match=r"expected|no zone"):
        call()
