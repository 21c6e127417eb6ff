"""What detections really show, worked by hand."""

import numpy as np
import pycocotools.cocoeval
import pytest

from farther.metrics import closed_set, wilderness
from farther.metrics.errors import error_diagnosis
from farther.metrics.matching import (
    falling_in_groups,
    not_of_known,
    ranks,
    ranks_within,
    true_classes,
)
from farther.metrics.self_awareness import image_uncertainty
from farther.tables import Objects, Regions


def objects(rows):
    image, box, category, crowd = zip(*rows, strict=True)
    ids = np.arange(len(rows))
    return Objects(
        image_id=image, object_id=ids, box=box, category=category, is_crowd=np.array(crowd)
    )


def regions(rows):
    image, box = zip(*rows, strict=True)
    count = len(rows)
    return Regions(
        image_id=image,
        region_id=np.arange(count) + 7,
        box=np.array(box, dtype=np.float32),
        score=np.full(count, 0.5),
        label=np.zeros(count),
        logits=np.zeros((count, 2)),
        classes=["cat", "dog"],
    )


def test_a_detection_shows_the_object_it_lies_over_most_whatever_it_is_called():
    found = true_classes(
        objects([("a", (0, 0, 10, 10), "zebra", False), ("a", (0, 0, 10, 8), "dog", False)]),
        regions(
            [
                ("a", (0, 0, 10, 8)),
                ("a", (0, 0, 10, 10)),
                ("a", (0, 0, 10, 10)),
                ("b", (0, 0, 10, 10)),
            ]
        ),
    )
    assert found.category.tolist() == ["dog", "zebra", "zebra", ""]
    assert found.region_id.tolist() == [7, 8, 9, 10]


def test_an_overlap_below_the_threshold_and_a_crowd_show_nothing():
    found = true_classes(
        objects([("a", (0, 0, 10, 10), "cat", False), ("a", (50, 50, 60, 60), "dog", True)]),
        regions([("a", (0, 0, 10, 4.9)), ("a", (0, 0, 10, 5)), ("a", (50, 50, 60, 60))]),
    )
    assert found.category.tolist() == ["", "cat", ""]


def test_the_order_of_objects_does_not_matter_even_for_equal_overlaps():
    rows = [("a", (0, 0, 10, 10), "cat", False), ("a", (0, 0, 10, 10), "dog", False)]
    one, seen = objects(rows), regions([("a", (0, 0, 10, 10))])
    assert (
        true_classes(one, seen).category.tolist()
        == true_classes(one[[1, 0]], seen).category.tolist()
        == ["dog"]
    )


def test_detections_of_known_objects_are_told_from_all_others():
    shown = objects([("a", (0, 0, 10, 10), "zebra", False), ("a", (30, 0, 40, 10), "cat", False)])
    made = regions([("a", (0, 0, 10, 10)), ("a", (30, 0, 40, 9)), ("a", (60, 0, 70, 10))])
    assert not_of_known(shown, made, ["cat", "dog"]).tolist() == [True, False, True]
    assert not_of_known(shown[:1], made, ["cat", "dog"]).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("lowest", [-3, 0])
@pytest.mark.parametrize("in_order", [False, True])
def test_ranks_are_those_of_sorting_one_by_one(dtype, lowest, in_order):
    random = np.random.default_rng(0)
    score = random.integers(lowest, 4, 200).astype(dtype) * dtype(
        1e-9
    )  # many ties, and differences that are small
    score[(score == 0) & (random.random(200) < 0.5)] = -0.0
    group, number = (
        random.integers(0, 5, 200),
        np.arange(200) if in_order else random.permutation(200),
    )
    expected = sorted(range(200), key=lambda row: (group[row], -score[row], number[row]))
    assert falling_in_groups(score, group, number).tolist() == expected
    place = ranks_within(score, group, number)
    assert all(
        place[row] == [one for one in expected if group[one] == group[row]].index(row)
        for row in range(200)
    )


@pytest.mark.parametrize(
    ("image", "number", "expected"),
    [
        ([0, 0, 1], [3, 5, 4], [0, 1, 2]),  # as tables are stored
        ([1, 0, 0], [3, 4, 5], [2, 0, 1]),  # images in another order, numbers that never fall
        ([0, 0, 1], [5, 3, 4], [1, 0, 2]),  # numbers in another order
        ([1, 0, 1], [0, 0, 0], [1, 0, 2]),
    ],
)
def test_equal_scores_go_by_image_and_number_whatever_the_order_of_the_table(
    image, number, expected
):
    assert ranks(np.full(3, 0.5), np.array(image), np.array(number)).tolist() == expected


@pytest.mark.parametrize("is_sorted", [True, False])
def test_ranks_of_a_table_are_those_of_sorting_its_rows(is_sorted):
    random = np.random.default_rng(2)
    image, number, score = (random.integers(0, most, 60) for most in (6, 8, 3))
    if is_sorted:
        order = np.lexsort((number, image))
        image, number = image[order], number[order]
    rows = sorted(range(60), key=lambda row: (-score[row], image[row], number[row]))
    assert np.argsort(ranks(score, image, number)).tolist() == rows


def test_constants_are_those_of_the_papers_and_of_coco():
    coco = pycocotools.cocoeval.Params(iouType="bbox")
    assert pytest.approx(coco.iouThrs) == closed_set.COCO_IOUS
    assert list(closed_set.AREA_RANGES.values()) == [tuple(limits) for limits in coco.areaRng[1:]]
    assert (wilderness.RECALLS, wilderness.BETAS, wilderness.RATIO_STEP) == (
        (0.1, 0.3, 0.5),
        (0.5, 1.0, 1.5),
        0.25,
    )
    assert (
        error_diagnosis.TOUCH == 0.1
        and pytest.approx(np.arange(0.05, 0.99, 0.05)) == error_diagnosis.RECALLS
    )
    assert error_diagnosis.Diagnosis().iou == 0.5 and error_diagnosis.Diagnosis().touch == 0.1
    assert image_uncertainty.AGGREGATES == ("sum", "mean", "top-5", "top-3", "top-2", "min")
    assert image_uncertainty.best_threshold(np.ones(0), np.ones(2)) is None
    assert image_uncertainty.best_threshold(np.ones(2), np.ones(0)) is None
