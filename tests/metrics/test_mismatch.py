"""Explanations of why no detection matches an object."""

import numpy as np
import pytest

from farther.metrics.closed_set import mismatch
from farther.tables import Images, Objects, Regions

CLASSES = ("cat", "dog", "fox", "owl")


@pytest.fixture
def photographs():
    """Images of several sizes, two objects in each, and exact detections of these."""
    rng = np.random.default_rng(0)
    count = 12
    names = [f"{number}.jpg" for number in range(count)]
    width = rng.integers(400, 900, count)
    height = rng.integers(300, 700, count)
    images = Images(
        image_id=names,
        dataset=["d"] * count,
        file=names,
        width=width,
        height=height,
        digest=["-"] * count,
    )
    place = np.repeat(np.arange(count), 2)
    side = np.stack([width, height], axis=1)[place]
    corner = rng.uniform(0.02, 0.3, (2 * count, 2)) * side
    box = np.concatenate([corner, corner + rng.uniform(0.2, 0.45, (2 * count, 2)) * side], axis=1)
    label = rng.permutation(2 * count) % len(CLASSES)
    shared = {"image_id": np.array(names, dtype=object)[place], "box": box}
    objects = Objects(
        object_id=np.arange(2 * count), category=np.array(CLASSES, dtype=object)[label], **shared
    )
    regions = Regions(
        region_id=np.arange(2 * count),
        score=np.full(2 * count, 0.9),
        label=label,
        classes=CLASSES,
        **shared,
    )
    return images, objects, regions


# How boxes look that were written or read in another way: of boxes (N, 4) and sizes of images
# (N, 2).


def stretched(side):
    """Boxes in images that are resized to a square."""
    return lambda box, size: side * box / np.tile(size, 2)


def padded(box, size):
    """Boxes in images that are scaled to fit a square of 416 pixels, and padded."""
    scale = 416 / size.max(axis=1, keepdims=True)
    margin = (416 - size * scale) / 2
    return box * scale + np.tile(margin, 2)


def scaled_by_longer_side(box, size):
    return 320 * box / size.max(axis=1, keepdims=True)


def scaled_by_shorter_side(box, size):
    return 800 * box / size.min(axis=1, keepdims=True)


def corners_as_sizes(box, size):
    return np.hstack([box[:, :2], box[:, :2] + box[:, 2:]])


def centres_as_corners(box, size):
    return box + np.tile(box[:, 2:] - box[:, :2], 2) / 2


def corners_as_centres(box, size):
    return box - np.tile(box[:, 2:] - box[:, :2], 2) / 2


def swapped_axes(box, size):
    return box[:, [1, 0, 3, 2]]


READINGS = {
    "fractions of width and height": stretched(1),
    "percentages of width and height": stretched(100),
    "pixels of a picture of 640 x 640": stretched(640),
    "pixels of a picture of 1000 x 1000": stretched(1000),
    "pixels of a picture that is padded to 416 x 416": padded,
    "pixels of a picture whose longer side is 320": scaled_by_longer_side,
    "pixels of a picture whose shorter side is 800": scaled_by_shorter_side,
    "corners that were read as x, y, width, height": corners_as_sizes,
    "centres that were read as upper left corners": centres_as_corners,
    "upper left corners that were read as centres": corners_as_centres,
    "y, x, y, x instead of x, y, x, y": swapped_axes,
}


@pytest.mark.parametrize("words", READINGS)
def test_boxes_that_were_read_in_another_way_are_told_apart(photographs, words):
    images, objects, regions = photographs
    place = [images.image_id.tolist().index(name) for name in regions.image_id]
    size = np.stack([images.width, images.height], axis=1)[place]
    wrong = regions.with_columns(box=READINGS[words](regions.box.astype(float), size))
    text = mismatch.explain(objects, wrong, images)
    assert f"boxes look like {words}. Objects have [" in text
    first, second = text.split("; detections have ")
    assert first.count("] in '") == second.count("] in '") == 3


def test_sizes_that_were_read_as_corners_are_told_apart(photographs):
    _, objects, regions = photographs
    box = np.tile(np.float32([100, 90, 230, 210]), (len(objects), 1))
    wrong = np.tile(np.float32([100, 90, 130, 120]), (len(objects), 1))  # x, y, width, height
    text = mismatch.explain(objects.with_columns(box=box), regions.with_columns(box=wrong))
    assert "boxes look like x, y, width, height that were read as corners" in text


@pytest.mark.parametrize(
    ("new_label", "looks"),
    [
        ([1, 2, 3, 0], "they look shifted, each number larger by 1 than the class's"),
        ([1, 0, 1, 2], "they look shifted, each number smaller by 1 than the class's"),
        ([3, 2, 1, 0], "they look numbered in reversed order"),
        ([2, 3, 1, 0], "they look numbered in another order"),
    ],
)
def test_classes_that_do_not_fit_are_told_with_what_they_look_like(photographs, new_label, looks):
    images, objects, regions = photographs
    wrong = regions.with_columns(label=np.array(new_label)[regions.label])
    text = mismatch.explain(objects, wrong, images)
    assert text.startswith("boxes fit, classes do not: detections overlap 24 of 24 objects")
    assert looks in text
    assert text.count(" is detected as ") == 3


def test_names_of_classes_that_the_detector_does_not_have_are_listed(photographs):
    images, objects, regions = photographs
    renamed = objects.with_columns(category=[f"{name}s" for name in objects.category])
    text = mismatch.explain(renamed, regions, images)
    objects_are = "Objects are of 'cats', 'dogs', 'foxs' and 1 more"
    assert text.endswith(f"{objects_are}; the detector has 'cat', 'dog', 'fox' and 1 more")


def test_other_images_are_told_with_names_of_both_sides(photographs):
    images, objects, regions = photographs
    elsewhere = regions.with_columns(image_id=[f"x{name}" for name in regions.image_id])
    assert mismatch.explain(objects, elsewhere, images) == (
        "the detections are of other images than the objects: "
        "objects in '0.jpg', '1.jpg', '2.jpg' and 9 more; "
        "detections in 'x0.jpg', 'x1.jpg', 'x2.jpg' and 9 more"
    )


def test_boxes_elsewhere_are_shown_beside_those_of_the_objects(photographs):
    images, objects, regions = photographs
    away = regions.with_columns(box=np.tile(np.float32([1, 1, 4, 4]), (len(regions), 1)))
    text = mismatch.explain(objects, away, images)
    assert (
        "overlap 0 of 24 objects by an IoU of 0.5: "
        "boxes are in other coordinates, or of other images. Obj" in text
    )
    assert (
        "detections have [1, 1, 4, 4] in '0.jpg', [1, 1, 4, 4] in '1.jpg', [1, 1, 4, 4] in '2.jpg'"
        in text
    )
