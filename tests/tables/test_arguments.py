"""The border of public functions: what users give is converted without loss, or refused."""

from pathlib import Path

import numpy as np
import pytest
import torch

from farther.errors import DataError, FartherError, ParameterError
from farther.tables import Objects, Regions
from farther.tables.arguments import (
    booleans,
    class_names,
    floats,
    integers,
    number,
    texts,
    whole_number,
)


def test_an_array_that_fits_is_not_copied():
    array = np.arange(3.0)
    assert np.shares_memory(floats(array, "scores"), array)
    names = np.array(["a", "b"], dtype=object)
    assert texts(names, "names") is names


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ([1.0, None], "row 1: field 'scores': the value is missing"),
        ([1.0, True], "booleans and numbers"),
        (np.ma.masked_greater([1.0, 2.0, 3.0], 1), "2 of 3 values are masked"),
        ([np.ones(3), np.ones(2)], "row 1: field 'scores': .*concatenate batches"),
        (np.ones((2, 3)), r"expected shape \(N,\), found \(2, 3\)"),
        (np.array([1.0, np.nan]), "row 1: field 'scores': not a finite number: nan"),
        ([2**53 + 1, 0], "9007199254740993 is an integer that"),
        (["1", "2"], "expected numbers, found text, such as '1'"),
        (torch.eye(2).to_sparse(), "to_dense"),
    ],
)
def test_values_that_are_no_numbers_are_refused_with_the_reason(values, problem):
    with pytest.raises(DataError, match=problem):
        floats(values, "scores")


def test_values_beyond_a_type_are_refused_and_not_made_infinite():
    with pytest.raises(DataError, match=r"row 1: .*1e\+40 is beyond the range of float32"):
        floats([0.5, 1e40], "logits", dtype=np.float32)
    assert floats([0.1], "logits", dtype=np.float32).tolist() == [np.float32(0.1)]


@pytest.mark.parametrize("value", [1.7, 65537, -32769, np.nan, np.inf, 1e30])
def test_a_class_number_is_never_cast_to_another(value):
    with pytest.raises(DataError, match="row 1: field 'labels'"):
        integers(np.array([0, value]), "labels", dtype=np.int16)


def test_whole_floats_are_class_numbers():
    assert integers(torch.tensor([0.0, 2.0]), "labels", dtype=np.int16).tolist() == [0, 2]


def test_zeros_and_ones_are_not_flags():
    with pytest.raises(DataError, match="expected 2 bool values, found int64"):
        booleans([0, 1], "is_unknown", shape=(2,))


def test_one_text_is_not_a_list_of_texts():
    with pytest.raises(DataError, match=r"found 'a.jpg': write \['a.jpg'\]"):
        Regions.from_arrays(np.eye(2), images="a.jpg")
    with pytest.raises(DataError, match="field 'classes'"):
        Regions.from_arrays(np.eye(3), classes="cat")


def test_numbers_and_paths_are_names_of_images_but_missing_values_are_not():
    assert texts([3, Path("a/b.jpg"), torch.tensor(5)], "images").tolist() == ["3", "a/b.jpg", "5"]
    assert texts(["a", np.str_("b"), 3], "images").tolist() == ["a", "b", "3"]
    for value in (None, float("nan"), True, b"a"):
        with pytest.raises(DataError, match="row 1: field 'images': expected text"):
            texts(["a", value], "images")


def test_classes_by_number_are_in_the_order_of_the_numbers():
    assert class_names({2: "dog", 0: "cat"}) == ["cat", "1", "dog"]
    for wrong in ({-1: "cat"}, {0.5: "cat"}, {True: "cat"}, {10**9: "cat"}, {0: "a", "0": "b"}):
        with pytest.raises(FartherError):
            class_names(wrong)


def test_a_boolean_is_not_a_number():
    for wrong in (True, np.True_, torch.tensor(True), "0.5", None, [0.5], float("nan")):
        with pytest.raises(ParameterError, match=r"^iou: expected a (finite )?number"):
            number(wrong, "iou")
    assert number(torch.tensor(0.5), "iou") == 0.5
    assert whole_number(np.float32(2), "k") == 2


def test_a_dict_without_a_key_is_named_with_its_keys():
    with pytest.raises(DataError, match=r"predictions\[1\]': no 'scores'; it has 'boxes, labels'"):
        good = {"boxes": [[0, 0, 1, 1]], "scores": [0.5], "labels": [0]}
        Regions.from_dicts([good, {"boxes": [], "labels": []}])


def test_objects_are_made_of_one_dict_and_of_an_iterator():
    target = {"boxes": [[0, 0, 1, 1]], "labels": ["cat"], "iscrowd": torch.tensor([1])}
    assert Objects.from_dicts(target).is_crowd.tolist() == [True]
    assert Objects.from_dicts(iter([target, target])).image_id.tolist() == ["0", "1"]
    with pytest.raises(DataError, match="expected 0 or 1"):
        Objects.from_dicts({**target, "iscrowd": [2]})


@pytest.mark.parametrize(
    ("limit", "inside", "at_or_beyond"),
    [
        ({"below": 1}, [0.5], [1, 2]),
        ({"at_most": 1}, [0.5, 1], [1.5]),
        ({"above": 1}, [1.5], [1, 0]),
        ({"at_least": 1}, [1, 1.5], [0.5]),
    ],
)
def test_a_number_is_within_its_limit(limit, inside, at_or_beyond):
    for value in inside:
        assert number(value, "alpha", **limit) == value
    for value in at_or_beyond:
        with pytest.raises(ParameterError, match=r"^alpha: "):
            number(value, "alpha", **limit)


def test_texts_are_one_per_row():
    with pytest.raises(DataError, match=r"expected one value per row, found shape \(2, 2\)"):
        texts(np.array([["a", "b"], ["c", "d"]]), "images")
