"""COCO's metrics, compared with pycocotools and faster-coco-eval."""

import numpy as np
import pytest
from tests.support.cases import slow_but

from farther.errors import DataError
from farther.metrics import closed_set, precision_recall
from farther.metrics.matching import boxes
from farther.metrics.weighting import row_weights
from farther.tables import Objects

STATS = ("ap", "ap50", "ap75", "ap_small", "ap_medium", "ap_large")
STATS += ("ar_1", "ar_10", "ar", "ar_small", "ar_medium", "ar_large")


def twelve(run):
    """The other library's twelve metrics, None where it gives −1."""
    return {
        name: None if value == -1 else value
        for name, value in zip(STATS, run.stats[:12], strict=True)
    }


@pytest.mark.parametrize("seed", slow_but((0,), range(4)))
def test_metrics_equal_other_libraries_with_crowds_ties_and_sizes(world, coco, seed):
    objects, regions = world(seed, images=25, classes=("cat", "dog", "hat"))
    found = closed_set.evaluate(objects, regions)
    assert {name: found[name] for name in STATS} == pytest.approx(
        twelve(coco(objects, regions)), abs=1e-6
    )


def test_ties_across_images_are_in_the_order_of_image_names_as_with_ids_in_that_order(
    objects, regions, coco
):
    box = [0, 0, 50, 50]
    # Equal confidences: true in image a, false in image b.
    truth, found = (
        objects(("a", box, "cat")),
        regions(("b", box, 0.5, "cat"), ("a", box, 0.5, "cat")),
    )
    assert (
        closed_set.evaluate(truth, found)["ap"]
        == pytest.approx(twelve(coco(truth, found))["ap"])
        == 1
    )
    later = truth.with_columns(image_id=["c"]), found.with_columns(image_id=["b", "c"])
    assert closed_set.evaluate(*later)["ap"] == pytest.approx(twelve(coco(*later))["ap"])
    assert closed_set.evaluate(*later)["ap"] == pytest.approx(0.5, abs=0.01)


def test_only_the_hundred_best_detections_of_an_image_and_class_count(world, coco):
    objects, regions = world(7, images=2, objects=20, regions=400)
    found = closed_set.evaluate(objects, regions)
    assert {name: found[name] for name in STATS} == pytest.approx(
        twelve(coco(objects, regions)), abs=1e-6
    )
    assert closed_set.evaluate(objects, regions, max_detections=10)["ar"] == found["ar_10"]
    assert closed_set.Matches.of(closed_set.ClosedSet.of(objects, regions)).evaluate() == found


def test_detections_of_other_classes_take_no_place_among_the_best(world):
    objects, regions = world(5, images=4, regions=60, classes=("cat", "dog", "hat"))
    found, alone = (
        closed_set.evaluate(objects, some, ("cat", "dog"), max_detections=5)
        for some in (regions, regions[regions.label < 2])
    )
    assert {name: found[name] for name in STATS} == pytest.approx(
        {name: alone[name] for name in STATS}
    )


def test_other_confidences_give_the_detections_and_pairs_of_a_table_that_has_them(world):
    objects, regions = world(6)
    random = np.random.default_rng(6)
    score, kept = random.random(len(regions)).astype(np.float32), random.random(len(regions)) < 0.6
    every = closed_set.ClosedSet.of(
        objects, regions, max_detections=len(regions), smallest_overlap=0.1
    )
    found = every.ranked_by(
        score, kept[every.detections.row], regions.region_id, 0.5, max_detections=3
    )
    table = regions.with_columns(score=score)[kept]
    expected = closed_set.ClosedSet.of(objects, table, max_detections=3, smallest_overlap=0.5)
    np.testing.assert_array_equal(
        found.detections.row, np.flatnonzero(kept)[expected.detections.row]
    )
    np.testing.assert_array_equal(found.detections.place, expected.detections.place)
    np.testing.assert_array_equal(found.bounds, expected.bounds)
    each = [
        sorted(zip(p.region, p.target, p.overlap, strict=True))
        for p in (found.pairs, expected.pairs)
    ]
    np.testing.assert_allclose(*each)
    assert len(each[0]) > 0


def test_many_pairs_are_compared_in_blocks_with_the_same_result(world, monkeypatch):
    objects, regions = world(3)
    before = closed_set.evaluate(objects, regions)
    monkeypatch.setattr(boxes, "BLOCK", 50)
    assert closed_set.evaluate(objects, regions) == before


def test_metrics_of_a_case_worked_by_hand(objects, regions):
    truth = objects(("a", [0, 0, 10, 10], "cat"), ("a", [50, 0, 60, 10], "cat"))
    # IoU 1 with the first object; nothing; 8/10 with the second one.
    found = regions(
        ("a", [0, 0, 10, 10], 0.9), ("a", [80, 80, 90, 90], 0.8), ("a", [50, 0, 58, 10], 0.7)
    )
    metrics = closed_set.evaluate(truth, found)
    # Recall 0 … 0.50 (51 points) at precision 1, the other 50 points at precision 2/3.
    assert metrics["ap50"] == pytest.approx((51 + 50 * 2 / 3) / 101)
    # From IoU 0.85 on only one object is found: IoU 0.80 still counts.
    assert metrics["ap"] == pytest.approx((7 * (51 + 50 * 2 / 3) + 3 * 51) / 1010)
    assert metrics["ar"] == pytest.approx((7 * 1 + 3 * 0.5) / 10)
    assert metrics["per_class"]["cat"]["objects"] == 2


def test_a_class_without_objects_is_left_out_of_the_mean(objects, regions):
    truth = objects(("a", [0, 0, 10, 10], "cat"))
    found = regions(("a", [0, 0, 10, 10], 0.9, "cat"), ("a", [0, 0, 10, 10], 0.8, "dog"))
    metrics = closed_set.evaluate(truth, found)
    assert metrics["ap"] == 1
    assert metrics["per_class"]["dog"] == {"ap": None, "ap50": None, "ar": None, "objects": 0}


def marked_difficult(objects, rows):
    """The same objects, none of them a crowd, some of them difficult."""
    is_difficult = np.zeros(len(objects), bool)
    is_difficult[rows] = True
    return Objects(
        **{
            **objects.columns(),
            "is_crowd": np.zeros(len(objects), bool),
            "is_difficult": is_difficult,
        }
    )


@pytest.mark.parametrize(
    ("box", "if_difficult", "if_crowd"),
    [
        ([110, 110, 120, 120], 0.5, 1),  # IoU 0.01, all of it inside
        ([100, 100, 200, 150], 1, 1),  # IoU 0.5
        ([100, 100, 200, 149], 0.5, 1),  # IoU 0.49
        ([150, 100, 250, 200], 0.5, 1),  # IoU 1/3, half of it inside
        ([151, 100, 251, 200], 0.5, 0.5),  # IoU 49/151, 0.49 of it inside
    ],
)
def test_a_difficult_object_ignores_by_iou_and_a_crowd_by_the_share_inside(
    objects, regions, box, if_difficult, if_crowd
):
    rows = ("a", [0, 0, 10, 10], "cat"), ("a", [100, 100, 200, 200], "cat")
    found = regions(("a", [0, 0, 10, 10], 0.5), ("a", box, 0.9))
    # A false detection before the true one halves the precision at every recall.
    difficult = marked_difficult(objects(*rows), [1])
    assert closed_set.evaluate(difficult, found)["ap50"] == pytest.approx(if_difficult)
    crowd = objects(rows[0], (*rows[1], True))
    assert closed_set.evaluate(crowd, found)["ap50"] == pytest.approx(if_crowd)


def average_precision_of_voc(objects, regions, name):
    """AP of a class at IoU 0.5 as Pascal VOC's development kit has it since 2010.

    A detection belongs to the object that it overlaps most, and is ignored where that one is
    difficult, as are any number of detections of it.
    """
    counted = np.sum((objects.category == name) & ~objects.is_difficult)
    taken = set()
    is_true = []
    of_class = np.flatnonzero(np.array(regions.classes, dtype=object)[regions.label] == name)
    for row in of_class[np.argsort(-regions.score[of_class], kind="stable")]:
        rivals = np.flatnonzero(
            (objects.image_id == regions.image_id[row]) & (objects.category == name)
        )
        overlap = boxes.overlaps(
            np.repeat(regions.box[[row]], len(rivals), axis=0), objects.box[rivals]
        )
        best = None
        if len(rivals) and overlap.max() >= 0.5:
            best = rivals[overlap.argmax()]
        if best is not None and objects.is_difficult[best]:
            continue
        is_true.append(best is not None and best not in taken)
        taken.add(best)
    true = np.cumsum(is_true)
    recall = np.concatenate([[0], true / counted])
    precision = true / np.arange(1, len(true) + 1)
    envelope = np.maximum.accumulate(precision[::-1])[::-1]
    return np.sum(np.diff(recall) * envelope)


@pytest.mark.parametrize("seed", slow_but((0,), range(3)))
def test_difficult_objects_are_those_of_vocs_development_kit(world, seed):
    objects, regions = world(seed, images=30, objects=2, regions=30)
    # One object per image and class: which of two a detection belongs to is another question.
    place = np.array(
        [f"{image} {name}" for image, name in zip(objects.image_id, objects.category, strict=True)]
    )
    _, first = np.unique(place, return_index=True)
    difficult = marked_difficult(objects[np.sort(first)], slice(None, None, 3))
    distinct = regions.with_columns(
        score=np.random.default_rng(seed).permutation(len(regions)) / len(regions)
    )
    matched = closed_set.ClosedSet.of(difficult, distinct).match([0.5])
    expected = [average_precision_of_voc(difficult, distinct, name) for name in distinct.classes]
    assert matched.average_precision(points=None)[0, :, 0].tolist() == pytest.approx(
        expected, abs=1e-12
    )
    every = marked_difficult(difficult, [])
    assert expected != pytest.approx(
        [average_precision_of_voc(every, distinct, name) for name in distinct.classes]
    )


def test_without_objects_all_is_none_and_without_detections_nothing_is_found(objects, regions):
    nothing = closed_set.evaluate(objects(), regions(("a", [0, 0, 5, 5], 0.5)))
    assert nothing["ap"] is None
    assert nothing["ar"] is None
    blind = closed_set.evaluate(objects(("a", [0, 0, 5, 5], "dog")), regions())
    assert (blind["ap"], blind["ar"]) == (0, 0)


def test_objects_of_other_classes_are_not_sought(objects, regions):
    truth = objects(("a", [0, 0, 10, 10], "cat"), ("a", [50, 0, 60, 10], "zebra"))
    assert closed_set.evaluate(truth, regions(("a", [0, 0, 10, 10], 0.9)))["ap"] == 1


@pytest.mark.parametrize("classes", [(), ("cat", "cat")])
def test_classes_must_be_different_names(objects, regions, classes):
    with pytest.raises(DataError, match="classes"):
        closed_set.evaluate(objects(), regions(), classes)


@pytest.mark.parametrize("decimals", [1, 9])
def test_the_order_of_rows_changes_nothing_be_scores_equal_or_not(world, decimals):
    objects, regions = world(11)
    regions = regions.with_columns(
        score=np.random.default_rng(0).random(len(regions)).round(decimals)
    )
    random = np.random.default_rng(1)
    before = closed_set.evaluate(objects, regions)
    shuffled = objects[random.permutation(len(objects))], regions[random.permutation(len(regions))]
    assert closed_set.evaluate(*shuffled) == before


@pytest.mark.parametrize(
    ("truth", "found"),
    [
        # Nothing found, in an image with an object; all objects crowds; a detection where there is
        # no object.
        ([("a", [0, 0, 9, 9], "cat")], [("b", [0, 0, 9, 9], 0.5)]),
        ([("a", [0, 0, 9, 9], "cat", True)], [("a", [0, 0, 9, 9], 0.5)]),
        (
            [("a", [0, 0, 9, 9], "cat"), ("b", [0, 0, 9, 9], "cat", True)],
            [("b", [0, 0, 5, 5], 0.5)],
        ),
        # Touching boxes; a box without an area; one object twice; one detection twice, as sure as
        # before.
        ([("a", [0, 0, 9, 9], "cat")], [("a", [9, 0, 18, 9], 0.5)]),
        ([("a", [0, 0, 0, 0], "cat"), ("a", [5, 5, 9, 9], "cat")], [("a", [0, 0, 0, 0], 0.9)]),
        ([("a", [0, 0, 9, 9], "cat"), ("a", [0, 0, 9, 9], "cat")], [("a", [0, 0, 9, 9], 0.9)]),
        ([("a", [0, 0, 9, 9], "cat")], [("a", [0, 0, 9, 9], 0.5), ("a", [0, 0, 9, 9], 0.5)]),
        # Equal confidences, in one image and over two, of which one is right.
        ([("a", [0, 0, 9, 9], "cat")], [("a", [20, 0, 29, 9], 0.5), ("a", [0, 0, 9, 9], 0.5)]),
        ([("b", [0, 0, 9, 9], "cat")], [("a", [0, 0, 9, 9], 0.5), ("b", [0, 0, 9, 9], 0.5)]),
        # Two overlaps of exactly the threshold.
        ([("a", [0, 0, 10, 10], "cat")], [("a", [0, 0, 10, 5], 0.5), ("a", [0, 5, 10, 10], 0.5)]),
    ],
)
def test_edge_cases_equal_other_libraries(objects, regions, coco, truth, found):
    truth, found = objects(*truth), regions(*found)
    metrics = closed_set.evaluate(truth, found)
    assert {name: metrics[name] for name in STATS} == pytest.approx(
        twelve(coco(truth, found)), abs=1e-6
    )


def test_iou_below_a_half_is_possible(objects, regions):
    truth = objects(("a", [0, 0, 10, 10], "cat"))
    known = closed_set.ClosedSet.of(truth, regions(("a", [0, 0, 10, 2], 0.9)))
    assert known.match([0.1, 0.5]).kind.tolist() == [[closed_set.TRUE], [closed_set.FALSE]]


def test_each_threshold_has_its_own_average_precision():
    kind = np.array([[1, 0, 1], [0, 1, 0]])
    # Recall 1/2 at precision 1 and at 2/3; recall 1/2 at precision 1/2.
    expected = [1 / 2 * 1 + 1 / 2 * 2 / 3, 1 / 2 * 1 / 2]
    assert precision_recall.average_precision(kind, positives=2) == pytest.approx(expected)


@pytest.mark.parametrize("points", [11, 101])
def test_sampled_recalls_are_looked_up_in_either_direction(monkeypatch, points):
    random = np.random.default_rng(points)
    kind = random.integers(-1, 2, (3, 400))
    weights = row_weights(
        random.multinomial(50, np.full(50, 1 / 50), size=30).astype(np.int32),
        random.integers(0, 50, 400),
        50,
    )
    positives = np.append(0, random.integers(100, 200, 29))
    expected = precision_recall.average_precision(kind, positives, points, weights)
    monkeypatch.setattr(precision_recall, "MIN_ROWS_OF_LOOKUP", 0)
    found = precision_recall.average_precision(kind, positives, points, weights)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert np.isnan(found[:, 0]).all()
