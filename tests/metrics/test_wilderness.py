"""Wilderness impact and what goes wrong."""

import numpy as np
import pytest

from farther.errors import DataError, ParameterError
from farther.metrics import wilderness

FIRST, SECOND, NOWHERE = [0, 0, 100, 100], [200, 0, 300, 100], [700, 700, 800, 800]
CLOSED, WILD = ["a", "b"], ["w1", "w2", "w3", "w4"]


@pytest.fixture
def case(objects, regions):
    """Two closed images with two cats and a dog; four wild ones, each with one detection."""
    truth = objects(("a", FIRST, "cat"), ("a", SECOND, "cat"), ("b", FIRST, "dog"))
    found = regions(
        ("a", FIRST, 0.9, "cat"),
        ("a", NOWHERE, 0.8, "cat"),
        ("a", SECOND, 0.6, "cat"),
        ("b", FIRST, 0.7, "dog"),
    )
    wild = regions(
        ("w1", FIRST, 0.85, "cat"), ("w2", FIRST, 0.65, "cat"), ("w3", FIRST, 0.75, "dog"), ("w4", FIRST, 0.1, "dog")
    )
    return truth, found, CLOSED, wild, WILD


def test_impact_worked_by_hand(case):
    wild = wilderness.Wilderness(*case)
    assert wild.ratio == 2
    # At recall 1 the operating points are 0.6 and 0.7: closed 3 true and 1 false; wild 0.85, 0.65 and 0.75.
    assert wild.operating_points(1.0) == pytest.approx([0.6, 0.7])
    at = wild.at_recall(1.0)
    assert at["impact"][-1] == 3 / 4
    # Precision closed: cat 2/3, dog 1. With wild images: cat 2/5, dog 1/2.
    assert at["impact_by_precision"][-1] == pytest.approx((5 / 3) / (9 / 10) - 1)
    # At recall 0.5 a cat is found at 0.9 already, where no wild detection of that class is.
    assert wild.at_recall(0.5)["impact"][-1] == 1 / 2
    assert at["impact"][0] == at["impact_by_precision"][0] == 0


def test_both_definitions_agree_for_a_single_class(case):
    truth, found, closed, others, images = case
    wild = wilderness.Wilderness(truth[:2], found[:3], closed, others, images)  # no dog
    at = wild.at_recall(1.0)
    assert at["impact"] == pytest.approx(at["impact_by_precision"])


def test_impact_never_falls_as_images_are_added_in_steps_of_a_tenth(world):
    objects, regions = world(0, images=10)
    _, others = world(1, images=25)
    others = others.with_columns(image_id=["w" + image for image in others.image_id])
    images, wild_images = [f"{i:03d}" for i in range(10)], [f"w{i:03d}" for i in range(25)]
    found = wilderness.evaluate(objects, regions, images, others, wild_images)
    assert found["ratios"] == pytest.approx([step / 10 for step in range(26)])
    at = found["at_recall"]["0.3"]
    assert at["impact"] == sorted(at["impact"])
    assert at["average_impact"] == pytest.approx(np.mean(at["impact"][1:]))
    assert found["map_open"] <= found["map_closed"]
    again = wilderness.evaluate(objects, regions, images, others, wild_images)
    assert again == found


def test_open_set_map_is_that_at_ratio_one(case):
    truth, found, closed, wild, _ = case
    both = wilderness.Wilderness(truth, found, closed, wild[[0, 2]], ["w1", "w3"])
    # Cat: 0.9 true, 0.85 wild, 0.8 false, 0.6 true: recalls 0 … 0.5 at precision 1, the other five at 2/4.
    # Dog: 0.75 wild, 0.7 true: 1/2.
    assert both.mean_ap(1.0) == pytest.approx(((6 + 5 / 2) / 11 + 1 / 2) / 2)
    assert both.mean_ap(0.0) == pytest.approx(((6 + 5 * 2 / 3) / 11 + 1) / 2)


def test_too_few_wild_images_are_an_error_not_a_guess(case):
    truth, found, closed, wild, images = case
    few = wilderness.Wilderness(truth, found, closed * 1, wild[:1], images[:1])
    with pytest.raises(ParameterError, match=r"ratios from 0 to 0\.5, not for 1"):
        few.mean_ap(1.0)
    assert wilderness.evaluate(truth, found, closed, wild[:1], images[:1])["map_open"] is None


def test_a_recall_that_no_class_reaches_has_no_impact(case, regions):
    truth, _, closed, wild, images = case
    blind = wilderness.Wilderness(truth, regions(("a", NOWHERE, 0.9)), closed, wild, images)
    assert blind.operating_points(0.1) == [None, None]
    assert blind.at_recall(0.1)["average_impact"] is None


def test_each_detection_has_one_cause(objects, regions):
    truth = objects(
        ("a", FIRST, "cat"),
        ("a", SECOND, "dog"),
        ("a", [400, 0, 500, 100], "horse"),
        ("a", [0, 400, 300, 700], "cat", True),
        ("w", FIRST, "fox"),
    )
    rows = [
        (("a", FIRST, 0.9, "cat"), "correct"),
        (("a", FIRST, 0.8, "cat"), "localisation"),
        (("a", [60, 0, 160, 100], 0.8, "cat"), "localisation"),
        (("a", SECOND, 0.8, "cat"), "similar"),
        (("a", [400, 0, 500, 100], 0.8, "cat"), "other_class"),
        (("a", NOWHERE, 0.8, "cat"), "background"),
        (("a", [50, 450, 150, 550], 0.8, "dog"), "ignored"),
        (("w", [50, 0, 150, 100], 0.8, "dog"), "unknown_unknown"),
        (("w", NOWHERE, 0.8, "dog"), "mixed_unknown"),
        (("w", NOWHERE, 0.4, "dog"), ""),
        (("a", NOWHERE, 0.9, "horse"), ""),
    ]
    found = regions(*(row for row, _ in rows), classes=("cat", "dog", "horse"))
    points = {"cat": 0.5, "dog": 0.5, "horse": None}
    causes = wilderness.diagnose(
        truth, found, points, wilderness.Diagnosis(similar=[{"cat", "dog"}], wild_images=["w"])
    )
    assert causes.tolist() == [cause for _, cause in rows]
    assert set(causes) - {""} == set(wilderness.CAUSES)


def test_confusion_counts_each_detection_for_the_object_it_overlaps_most(objects, regions):
    truth = objects(("w", FIRST, "fox"), ("w", [50, 0, 150, 100], "bear"), ("a", FIRST, "cat"))
    found = regions(
        ("w", FIRST, 0.9, "dog"),
        ("w", [40, 0, 140, 100], 0.9, "dog"),
        ("w", FIRST, 0.9, "cat"),
        ("w", FIRST, 0.1, "cat"),
        ("a", FIRST, 0.9, "cat"),
        ("a", NOWHERE, 0.9, "cat"),
    )
    table = wilderness.confusion(truth, found, {"cat": 0.5, "dog": 0.5})
    assert table == {"fox": {"dog": 1, "cat": 1}, "bear": {"dog": 1}, "cat": {"cat": 1}}


def test_wrong_inputs_are_named(case):
    truth, found, closed, wild, images = case
    with pytest.raises(DataError, match="'b' is not one of the closed images"):
        wilderness.Wilderness(truth, found, ["a"], wild, images)
    with pytest.raises(DataError, match="row 0: field 'image_id': 'w1' is not one of the wild images"):
        wilderness.Wilderness(truth, found, closed, wild, images[1:])
    with pytest.raises(DataError, match="no closed image"):
        wilderness.Wilderness(truth, found, [], wild, images)
    with pytest.raises(ParameterError, match="recall"):
        wilderness.Wilderness(*case).operating_points(0)
