"""The operating threshold."""

import numpy as np
import pytest
from tests.support.cases import slow_but

from farther.errors import DataError, ParameterError
from farther.metrics import closed_set
from farther.metrics.closed_set import operating_threshold
from farther.tables import Regions

FIRST, SECOND, NOWHERE = [0, 0, 10, 10], [50, 0, 60, 10], [80, 80, 90, 90]


@pytest.fixture
def case(objects, regions):
    truth = objects(("a", FIRST, "cat"), ("a", SECOND, "cat"), ("b", FIRST, "dog"))
    found = regions(
        ("a", FIRST, 0.9, "cat"),
        ("a", NOWHERE, 0.6, "cat"),
        ("a", SECOND, 0.5, "cat"),
        ("a", NOWHERE, 0.25, "cat"),
        ("b", FIRST, 0.75, "dog"),
        ("b", NOWHERE, 0.125, "dog"),
    )
    return truth, found


def test_best_f1_is_the_mean_of_the_best_of_each_class(case):
    chosen = operating_threshold.choose(*case, "best_f1")
    # cat: F1 is 2/3 at 0.9, 1/2 at 0.6, 4/5 at 0.5, 2/3 at 0.25. dog: 1 at 0.75.
    assert chosen["per_class"]["cat"]["threshold"] == 0.5
    assert chosen["per_class"]["cat"]["f1"] == pytest.approx(0.8)
    assert chosen["per_class"]["dog"]["threshold"] == 0.75
    assert chosen["threshold"] == pytest.approx(0.625)
    # At 0.625 only the first cat is left.
    assert chosen["per_class"]["cat"]["precision"] == 1
    assert chosen["per_class"]["cat"]["recall"] == 0.5


def test_best_map_cuts_off_only_what_adds_nothing(case):
    chosen = operating_threshold.choose(*case, "best_map")
    assert chosen["threshold"] == 0.5
    assert chosen["map"] == pytest.approx(closed_set.evaluate(*case)["ap"])


def test_best_map_cuts_off_more_where_some_loss_is_allowed(case):
    # Without the second cat the class keeps 51 of 101 recall points, at precision 1.
    whole = ((51 + 50 * 2 / 3) / 101 + 1) / 2
    loss = whole - (51 / 101 + 1) / 2
    assert operating_threshold.choose(*case, "best_map", tolerance=loss - 0.001)["threshold"] == 0.5
    assert (
        operating_threshold.choose(*case, "best_map", tolerance=loss + 0.001)["threshold"] == 0.75
    )


@pytest.mark.parametrize("seed", slow_but((0,), range(3)))
def test_no_larger_threshold_keeps_the_best_map(world, seed):
    objects, regions = world(seed)
    chosen = operating_threshold.choose(objects, regions, "best_map")["threshold"]
    best = closed_set.evaluate(objects, regions)["ap"]
    assert closed_set.evaluate(objects, regions.above(chosen))["ap"] == pytest.approx(
        best, abs=1e-12
    )
    larger = regions.score[regions.score > chosen]
    if len(larger):
        assert closed_set.evaluate(objects, regions.above(larger.min()))["ap"] < best - 1e-12


@pytest.mark.parametrize("seed", slow_but((0,), range(3)))
def test_no_threshold_has_a_better_f1(world, seed):
    objects, regions = world(seed)
    per_class = operating_threshold.choose(objects, regions)["per_class"]
    for name, chosen in per_class.items():
        label = regions.classes.index(name)
        reached = []
        for level in np.unique(regions.score[regions.label == label]):
            matched = closed_set.ClosedSet.of(objects, regions.above(level)).match([0.5])
            point = matched.curve(0, label)
            total = point.precision[-1] + point.recall[-1] if len(point.recall) else 0
            reached.append(2 * point.precision[-1] * point.recall[-1] / total if total else 0)
        assert chosen["f1"] == pytest.approx(max(reached))


def test_equal_confidences_stand_or_fall_together(objects, regions):
    truth = objects(("a", FIRST, "cat"))
    found = regions(("a", FIRST, 0.5), ("a", NOWHERE, 0.5), ("a", NOWHERE, 0.5))
    assert operating_threshold.choose(truth, found)["per_class"]["cat"]["f1"] == pytest.approx(0.5)


def test_a_number_is_taken_as_it_is(case):
    assert operating_threshold.choose(*case, 0.39)["threshold"] == 0.39


@pytest.mark.parametrize("rule", ["best", 1.5, -0.1, True])
def test_an_unknown_rule_is_refused(case, rule):
    with pytest.raises(ParameterError, match="operating threshold"):
        operating_threshold.choose(*case, rule)


def test_nothing_to_choose_from_is_an_error_that_says_why(objects, regions):
    with pytest.raises(DataError, match="chosen without objects; give a number"):
        operating_threshold.choose(objects(), regions())
    with pytest.raises(
        DataError, match="1 objects, but no detection of a known class; those with a conf"
    ):
        operating_threshold.choose(objects(("a", FIRST, "cat")), regions())
    with pytest.raises(
        DataError,
        match=r"no object is of a class of the detector \('cat', 'dog', …\); .* of 'hound'",
    ):
        operating_threshold.choose(objects(("a", FIRST, "hound")), regions(("a", FIRST, 0.5)))
    with pytest.raises(DataError, match=r"all 2 objects of classes of the detector are crowds"):
        crowds = objects(("a", FIRST, "cat", True), ("b", FIRST, "dog", True))
        operating_threshold.choose(crowds, regions(("a", FIRST, 0.5)))
    with pytest.raises(DataError, match="chosen without objects"):
        unlabelled = objects(("a", FIRST, "unlabelled", True))
        operating_threshold.choose(unlabelled, regions(("a", FIRST, 0.5)))
    for rule in ("best_f1", "best_map"):
        with pytest.raises(
            DataError, match=r"overlap 0 of 1 objects .*: boxes are in other coordinates"
        ) as error:
            operating_threshold.choose(
                objects(("a", FIRST, "cat")), regions(("a", NOWHERE, 0.5)), rule
            )
        assert "Objects have [0, 0, 10, 10] in 'a'; detections have [80, 80, 90, 90] in 'a'" in str(
            error.value
        )
        assert "give a number" not in str(error.value)
    assert operating_threshold.choose(objects(), regions(), 0.5)["threshold"] == 0.5


def test_a_class_without_detections_has_no_f1_and_one_without_objects_no_recall(objects, regions):
    truth, found = (
        objects(("a", FIRST, "cat"), ("a", NOWHERE, "cat")),
        regions(("a", FIRST, 0.5, "dog")),
    )
    found = operating_threshold.choose(truth, found, 0.3)["per_class"]
    assert found["cat"] == {"threshold": None, "f1": 0.0, "precision": None, "recall": 0.0}
    assert (found["dog"]["precision"], found["dog"]["recall"]) == (None, None)


@pytest.mark.parametrize("rule", ["best_f1", "best_map", 0.5])
def test_whole_images_are_never_discarded(objects, rule):
    truth = objects(("a", FIRST, "cat"), ("b", FIRST, "dog"))
    whole = Regions(
        image_id=["a", "b"],
        region_id=[0, 1],
        box=[FIRST, FIRST],
        score=[0.9, 0.4],
        label=[0, 0],
        logits=[[2, 0], [1, 0]],
        classes=("cat", "dog"),
        whole_images=True,
    )
    chosen = operating_threshold.choose(truth, whole, rule)
    assert (chosen["threshold"], chosen["rule"]) == (0.0, "whole images")
    assert chosen["per_class"]["cat"] | {"threshold": 0} == {
        "threshold": 0,
        "f1": 1.0,
        "precision": 0.5,
        "recall": 1.0,
    }
