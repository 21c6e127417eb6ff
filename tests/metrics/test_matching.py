"""What detections really show, worked by hand."""

import numpy as np

from farther.metrics.matching import not_of_known, true_classes
from farther.tables import Objects, Regions


def objects(rows):
    image, box, category, crowd = zip(*rows, strict=True)
    ids = np.arange(len(rows))
    return Objects(image_id=image, object_id=ids, box=box, category=category, is_crowd=np.array(crowd))


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
        regions([("a", (0, 0, 10, 8)), ("a", (0, 0, 10, 10)), ("a", (0, 0, 10, 10)), ("b", (0, 0, 10, 10))]),
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
    assert true_classes(one, seen).category.tolist() == true_classes(one[[1, 0]], seen).category.tolist() == ["dog"]


def test_detections_of_known_objects_are_told_from_all_others():
    shown = objects([("a", (0, 0, 10, 10), "zebra", False), ("a", (30, 0, 40, 10), "cat", False)])
    made = regions([("a", (0, 0, 10, 10)), ("a", (30, 0, 40, 9)), ("a", (60, 0, 70, 10))])
    assert not_of_known(shown, made, ["cat", "dog"]).tolist() == [True, False, True]
    assert not_of_known(shown[:1], made, ["cat", "dog"]).all()
