"""Open-world metrics on mixed images, by hand."""

import numpy as np
import polars as pl
import pytest

from farther.metrics.open_set.open_world import MixedImages
from farther.tables import Objects, Regions

CLASSES = ("cat", "dog", "unknown")
LEFT, MIDDLE, RIGHT = [0, 0, 10, 10], [20, 0, 30, 10], [40, 0, 50, 10]


def objects(*rows):
    image, box, category = zip(*rows, strict=True)
    return Objects(
        image_id=image, object_id=np.arange(len(rows)), box=np.array(box, float), category=category
    )


def regions(*rows):
    image, box, score, label = zip(*rows, strict=True)
    return Regions(
        image_id=image,
        region_id=np.arange(len(rows)),
        box=np.array(box, np.float32),
        score=np.array(score, np.float32),
        label=[CLASSES.index(name) for name in label],
        logits=np.zeros((len(rows), 3), np.float32),
        classes=CLASSES,
        unknown_columns=(2,),
    )


TRUTH = objects(
    ("id", LEFT, "cat"), ("id", MIDDLE, "cat"), ("ood", LEFT, "fox"), ("ood", MIDDLE, "owl")
)
FOUND = regions(
    ("id", LEFT, 0.9, "cat"),
    ("ood", LEFT, 0.8, "cat"),  # a fox
    ("ood", MIDDLE, 0.7, "dog"),  # an owl
    ("ood", RIGHT, 0.6, "cat"),  # nothing
    ("id", MIDDLE, 0.5, "cat"),
    ("ood", MIDDLE, 0.1, "unknown"),
)


def measured(flagged, truth=TRUTH, found=FOUND):
    mixed = MixedImages.of(truth, found, CLASSES[:2])
    outcome = mixed.match(np.array(flagged) | found.is_labelled_unknown)
    return mixed, outcome, mixed.metrics(outcome)


def test_metrics_of_a_detector_that_labels_one_object_as_unknown():
    _, _, found = measured([False] * 6)
    # Cats: true at ranks 1 and 4 of 4, 1/2 * 1 + 1/2 * 2/4. Dogs have no object.
    assert found["ap_k"] == found["ap_k_before"] == 0.75
    assert (found["u_recall"], found["a_ose"], found["a_ose_by_class"]) == (
        0.5,
        2,
        {"cat": 1, "dog": 1},
    )
    # At recall 0.8 both cats are found: one of the four detections from 0.5 on is on an unknown
    # object.
    assert found["wi"] == pytest.approx(1 / 3)
    assert (found["unknown_objects"], found["task"]) == (2, "T2")


def test_flagging_raises_the_precision_of_known_classes_and_the_recall_of_unknown_objects():
    _, _, found = measured([False, True, False, False, False, False])
    assert (found["u_recall"], found["a_ose"], found["wi"]) == (1.0, 1, 0)
    # True at ranks 1 and 3 of 3: 1/2 * 1 + 1/2 * 2/3.
    assert (found["ap_k_before"], found["ap_k"]) == (0.75, pytest.approx(5 / 6))


def test_images_that_show_both_kinds_are_task_one():
    truth = objects(("ood", LEFT, "fox"), ("ood", RIGHT, "cat"), ("id", LEFT, "dog"))
    found = measured([False] * 6, truth=truth)[2]
    assert (found["unknown_objects"], found["task"]) == (1, "T1")


@pytest.mark.parametrize(("better", "u_recall"), [(99, 0.5), (100, 0)])
def test_only_the_100_most_confident_detections_of_an_image_count(better, u_recall):
    many = [("ood", RIGHT, 0.5, "cat")] * better
    _, _, found = measured(
        [False] * (better + 1), found=regions(*many, ("ood", LEFT, 0.4, "unknown"))
    )
    assert (found["u_recall"], found["a_ose"]) == (u_recall, 0)


def test_a_replicate_counts_each_image_as_often_as_it_was_drawn():
    mixed, outcome, _ = measured([False] * 6)
    drawn = mixed.metrics(outcome, np.array([[1, 1], [0, 3], [2, 0]]))
    assert drawn["a_ose"].tolist() == [2, 6, 0]
    np.testing.assert_array_equal(drawn["u_recall"], [0.5, 0.5, np.nan])


def with_large_boxes(regions, side):
    """Every 50th region has a square box of this side."""
    is_square = np.arange(len(regions))[:, None] % 50 == 0
    return regions.with_columns(box=np.where(is_square, [0, 0, side, side], regions.box))


def with_prefix(table, prefix):
    """A table whose images have longer names."""
    longer = pl.lit(prefix) + pl.col("image_id")
    return table.with_frame(table.frame.with_columns(image_id=longer))


@pytest.mark.parametrize(("seed", "side"), [(0, 10), (1, 10), (2, 2e5), (3, 2e5)])
def test_joined_images_are_those_of_joined_tables(world, seed, side):
    """Two sets that share names of images and confidences, and whose names interleave.

    Some detections have 10¹⁰ square pixels or more and are ignored.
    """
    own_objects, own_regions = world(seed, images=30)
    other_objects, other_regions = world(seed + 10, images=20)
    own_regions = with_large_boxes(own_regions, side)
    other_regions = with_large_boxes(other_regions, side)
    classes = list(own_regions.header.known_classes)
    own = MixedImages.of(own_objects, own_regions, classes)
    other = MixedImages.of(other_objects, other_regions, classes)
    found = own.joined(other, "img")

    objects = Objects.concatenate([own_objects, with_prefix(other_objects, "img/")])
    regions = Regions.concatenate([own_regions, with_prefix(other_regions, "img/")])
    expected = MixedImages.of(objects, regions, classes)
    flagged = np.random.default_rng(seed).random(len(regions)) < 0.3
    assert found.metrics(found.match(flagged)) == expected.metrics(expected.match(flagged))
    for name in ("rank", "image", "confidence", "label"):
        np.testing.assert_array_equal(
            getattr(found.split.detections, name), getattr(expected.split.detections, name)
        )
    np.testing.assert_array_equal(found.split.images, expected.split.images)
    np.testing.assert_array_equal(found.known.detections.row, expected.known.detections.row)
    np.testing.assert_array_equal(found.known.pairs.region, expected.known.pairs.region)
