"""What is said where no detection matches an object."""

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


def padded(box, size, side):
    """Boxes in pictures that are scaled to fit a square, and padded."""
    scale = side / size.max(axis=1, keepdims=True)
    margin = (side - size * scale) / 2
    return box * scale + np.tile(margin, 2)


READINGS = {
    "fractions of width and height": lambda box, size: box / np.tile(size, 2),
    "percentages of width and height": lambda box, size: 100 * box / np.tile(size, 2),
    "pixels of a picture of 640 x 640": lambda box, size: 640 * box / np.tile(size, 2),
    "pixels of a picture of 1000 x 1000": lambda box, size: 1000 * box / np.tile(size, 2),
    "pixels of a picture that is padded to 416 x 416": lambda box, size: padded(box, size, 416),
    "pixels of a picture whose longer side is 320": lambda box, size: (
        320 * box / size.max(axis=1, keepdims=True)
    ),
    "pixels of a picture whose shorter side is 800": lambda box, size: (
        800 * box / size.min(axis=1, keepdims=True)
    ),
    "corners that were read as x, y, width, height": lambda box, size: np.hstack(
        [box[:, :2], box[:, :2] + box[:, 2:]]
    ),
    "centres that were read as upper left corners": lambda box, size: (
        box + np.tile(box[:, 2:] - box[:, :2], 2) / 2
    ),
    "upper left corners that were read as centres": lambda box, size: (
        box - np.tile(box[:, 2:] - box[:, :2], 2) / 2
    ),
    "y, x, y, x instead of x, y, x, y": lambda box, size: box[:, [1, 0, 3, 2]],
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
    ("label", "looks"),
    [
        (lambda k: (k + 1) % 4, "they look shifted, each number larger by 1 than the class's"),
        (
            lambda k: np.clip(k - 1, 0, 3) + (k == 0),
            "they look shifted, each number smaller by 1 than the class's",
        ),
        (lambda k: 3 - k, "they look numbered in reversed order"),
        (lambda k: np.array([2, 3, 1, 0])[k], "they look numbered in another order"),
    ],
)
def test_classes_that_do_not_fit_are_told_with_what_they_look_like(photographs, label, looks):
    images, objects, regions = photographs
    wrong = regions.with_columns(label=label(regions.label))
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
