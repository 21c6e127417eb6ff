"""Causes of detections, and their shares over recall."""

import numpy as np
import pytest

from farther.errors import ParameterError
from farther.metrics import wilderness
from farther.metrics.closed_set import ClosedSet
from farther.metrics.errors import error_diagnosis
from farther.metrics.statistics.bootstrap import ImageDraws
from farther.metrics.weighting import GroupWeights

FIRST, SECOND, NOWHERE = [0, 0, 100, 100], [200, 0, 300, 100], [700, 700, 800, 800]


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
    causes = error_diagnosis.diagnose(
        truth, found, points, error_diagnosis.Diagnosis(similar=[{"cat", "dog"}], wild_images=["w"])
    )
    assert causes.tolist() == [cause for _, cause in rows]
    assert set(causes) - {""} == set(error_diagnosis.CAUSES)


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
    table = error_diagnosis.confusion(truth, found, {"cat": 0.5, "dog": 0.5})
    assert table == {"fox": {"dog": 1, "cat": 1}, "bear": {"dog": 1}, "cat": {"cat": 1}}


def test_a_class_may_be_similar_to_classes_that_are_not_similar_to_each_other(objects, regions):
    truth = objects(("a", FIRST, "bird"), ("b", FIRST, "plane"), ("c", FIRST, "train"))
    classes = ("bird", "plane", "train")
    found = regions(
        ("a", FIRST, 0.9, "plane"),
        ("b", FIRST, 0.9, "train"),
        ("c", FIRST, 0.9, "bird"),
        classes=classes,
    )
    settings = error_diagnosis.Diagnosis(similar=[["plane", "train"], ["plane", "bird"]])
    causes = error_diagnosis.diagnose(truth, found, dict.fromkeys(classes, 0.5), settings)
    assert causes.tolist() == ["similar", "similar", "other_class"]


@pytest.fixture
def diagnosed(world):
    """A closed set with wild images, the cause of each detection, and the wilderness of both."""
    objects, regions = world(0, images=12)
    _, others = world(1, images=12)
    others = others.with_columns(image_id=["w" + image for image in others.image_id])
    images, wild = [f"{i:03d}" for i in range(12)], [f"w{i:03d}" for i in range(12)]
    both = type(regions).concatenate(
        [regions, others.with_columns(region_id=others.region_id + 10_000)]
    )
    settings = error_diagnosis.Diagnosis(wild_images=wild)
    cause = error_diagnosis.diagnose(
        objects, both, dict.fromkeys(regions.classes, -np.inf), settings
    )
    known = ClosedSet.of(objects, both, max_detections=len(both) + 1)
    impact = wilderness.Wilderness(objects, regions, images, others, wild)
    return known, cause[known.detections.row], impact, (objects, both, settings)


def counts(diagnosed, recalls, weights=None):
    known, cause, *_ = diagnosed
    numbers = np.array([error_diagnosis.CAUSES.index(name) for name in cause])
    return error_diagnosis.counts_at_recalls(known.match([0.5]), numbers, recalls, weights)


@pytest.mark.parametrize("recall", [0.1, 0.3, 0.5])
def test_counts_are_those_of_the_detections_above_the_operating_points(diagnosed, recall):
    _, _, impact, (objects, both, settings) = diagnosed
    points = dict(zip(impact.classes, impact.operating_points(recall), strict=True))
    causes = error_diagnosis.diagnose(objects, both, points, settings).tolist()
    found, classes = counts(diagnosed, [recall])
    assert dict(zip(error_diagnosis.CAUSES, found[:, 0, 0].tolist(), strict=True)) == {
        name: causes.count(name) for name in error_diagnosis.CAUSES
    }
    assert classes.item() == len(points)


def test_shares_add_up_to_one(diagnosed):
    found = error_diagnosis.shares(counts(diagnosed, [0.1, 0.5])[0])
    assert "ignored" not in found
    np.testing.assert_allclose(np.sum(list(found.values()), axis=0), 1)


def test_a_replicate_is_the_value_on_the_images_drawn(diagnosed):
    known, *_, (objects, both, settings) = diagnosed
    draws = ImageDraws(known.images, 3, seed=4)
    found, classes = counts(diagnosed, [0.2, 0.4], draws.of(known.images))
    for replicate in range(3):
        drawn, _ = draws.written_out(replicate, both)
        wild = [name for name in draws.drawn_names(replicate) if name.startswith("w")]
        again = error_diagnosis.Diagnosis(wild_images=wild, iou=settings.iou)
        truth = draws.written_out(replicate, objects)[0]
        cause = error_diagnosis.diagnose(truth, drawn, dict.fromkeys(drawn.classes, -np.inf), again)
        of_drawn = ClosedSet.of(truth, drawn, max_detections=len(drawn) + 1)
        plain = counts((of_drawn, cause[of_drawn.detections.row]), [0.2, 0.4])
        np.testing.assert_array_equal(found[:, :, replicate], plain[0][:, :, 0])
        np.testing.assert_array_equal(classes[:, replicate], plain[1][:, 0])


def test_groups_that_are_drawn_give_what_their_images_give(diagnosed):
    images = len(diagnosed[0].images)
    groups = GroupWeights(
        np.random.default_rng(0).multinomial(4, [0.25] * 4, 20), np.arange(images) % 4
    )
    recalls = [0.1, 0.4, 0.8, 1.0]
    (found, classes), (expected, reached) = (
        counts(diagnosed, recalls, weights)
        for weights in (groups, groups.of_groups[:, groups.group])
    )
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(classes, reached)
    assert 0 < np.mean(classes > 0) < 1


@pytest.mark.parametrize("grouped", [False, True])
def test_a_class_whose_objects_are_not_drawn_reaches_no_recall(objects, regions, grouped):
    truth = objects(("a", FIRST, "cat"), ("b", FIRST, "dog"))
    found = regions(("a", FIRST, 0.9, "cat"), ("b", FIRST, 0.8, "dog"))
    known = ClosedSet.of(truth, found)
    cause = error_diagnosis.diagnose(truth, found, {"cat": 0.5, "dog": 0.5})
    drawn = np.array([[2, 0], [0, 1], [1, 1], [0, 0]])
    weights = GroupWeights(drawn, np.arange(2)) if grouped else drawn
    each, classes = counts((known, cause[known.detections.row]), [0.5], weights)
    assert classes.tolist() == [[1, 1, 2, 0]]
    assert each[error_diagnosis.CAUSES.index("correct"), 0].tolist() == [2, 1, 2, 0]


def test_a_recall_that_is_not_reached_has_no_detections(diagnosed):
    found, classes = counts(diagnosed, [1.0])
    assert classes.item() == 0 and not found.any()
    assert all(np.isnan(of).all() for of in error_diagnosis.shares(found).values())
    for recall in (0.0, 1.01):
        with pytest.raises(
            ParameterError, match=f"recalls: .* above 0 and at most 1, found {recall}"
        ):
            counts(diagnosed, [0.5, recall])
