import numpy as np
import pytest

from farther_training.recipe import Augmentation
from farther_training.samples import Sample, augment, colour

STILL = Augmentation(flip=0)


class Chosen:
    """A generator of given numbers: `uniform` returns a given point of its range."""

    def __init__(self, uniform=0.5, random=0.0):
        self.at, self.number = uniform, random

    def uniform(self, low, high, size=None):
        value = low + (high - low) * self.at
        return value if size is None else np.full(size, value)

    def random(self):
        return self.number


def block(width=80, height=60, box=(10, 20, 30, 50)):
    """A white block on black with its box."""
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[box[1] : box[3], box[0] : box[2]] = 255
    return Sample(pixels, np.array([box], np.float32), np.array([3]))


def bright_box(pixels):
    """Edges of what is bright."""
    y, x = np.nonzero(pixels[:, :, 0] > 180)
    return x.min(), y.min(), x.max() + 1, y.max() + 1


def test_nothing_asked_for_nothing_changed():
    sample = block()
    same = augment(sample, STILL, np.random.default_rng(0))
    np.testing.assert_array_equal(same.pixels, sample.pixels)
    np.testing.assert_array_equal(same.boxes, sample.boxes)


def test_a_mirror_image_has_its_boxes_mirrored():
    sample = block()
    flipped = augment(sample, Augmentation(flip=1), np.random.default_rng(0))
    np.testing.assert_array_equal(flipped.pixels, sample.pixels[:, ::-1])
    np.testing.assert_array_equal(flipped.boxes, [[50, 20, 70, 50]])


def test_growing_by_half_keeps_the_centre_and_moves_boxes_by_hand_worked_numbers():
    grown = augment(block(), Augmentation(flip=0, scale=(1.5, 1.5)), np.random.default_rng(0))
    # x → 40 + 1.5 (x - 40), y → 30 + 1.5 (y - 30), cut off at the lower edge 60
    np.testing.assert_allclose(grown.boxes, [[-5 + 0, 15, 25, 60]] * np.array([0, 1, 1, 1]))


@pytest.mark.parametrize("seed", range(12))
def test_boxes_stay_on_what_they_showed(seed):
    how = Augmentation(flip=0.5, scale=(0.6, 1.6), translate=0.2, min_visible=0.05)
    changed = augment(block(), how, np.random.default_rng(seed))
    assert len(changed.boxes) == 1
    np.testing.assert_allclose(changed.boxes[0], bright_box(changed.pixels), atol=1)


def test_a_box_that_shows_too_little_is_dropped_with_its_label():
    # A quarter of the width to the left: 10 of the box's 20 columns are left.
    how = {"flip": 0, "translate": 0.25}
    kept = augment(
        block(box=(10, 20, 30, 50)), Augmentation(**how, min_visible=0.4), Chosen(uniform=0.0)
    )
    np.testing.assert_array_equal(kept.boxes, [[0, 5, 10, 35]])
    dropped = augment(
        block(box=(10, 20, 30, 50)), Augmentation(**how, min_visible=0.6), Chosen(uniform=0.0)
    )
    assert dropped.boxes.shape == (0, 4)
    assert len(dropped.labels) == 0


def test_an_image_without_objects_stays_one():
    empty = Sample(
        np.zeros((40, 40, 3), np.uint8), np.zeros((0, 4), np.float32), np.zeros(0, np.int64)
    )
    changed = augment(empty, Augmentation(scale=(0.5, 2), translate=0.3), np.random.default_rng(0))
    assert changed.boxes.shape == (0, 4)


LUMA = 0.299 * 200 + 0.587 * 100 + 0.114 * 50  # ITU 601


@pytest.mark.parametrize(
    ("how", "uniform", "pixel", "expected"),
    [
        ({"brightness": 1}, 1.0, (10, 60, 100), [20, 120, 200]),
        ({"brightness": 1}, 0.0, (10, 60, 100), [0, 0, 0]),
        ({"contrast": 0.5}, 1.0, (127.5, 27.5, 227.5), [127.5, -22.5, 277.5]),
        ({"saturation": 1}, 0.0, (200, 100, 50), [LUMA] * 3),
        ({"hue": 1 / 3}, 1.0, (255, 0, 0), [0, 255, 0]),
        ({"hue": 1 / 3}, 1.0, (90, 90, 90), [90, 90, 90]),
    ],
    ids=["bright", "black", "around middle grey", "grey", "the next primary", "grey has no hue"],
)
def test_colours_change_as_worked_out_by_hand(how, uniform, pixel, expected):
    changed = colour(Augmentation(**how), Chosen(uniform=uniform)) @ [*pixel, 1]
    assert changed == pytest.approx(expected, abs=1e-9)


def test_the_same_generator_gives_the_same_image():
    how = Augmentation(
        scale=(0.5, 2), translate=0.2, brightness=0.5, contrast=0.5, saturation=0.5, hue=0.5
    )
    one, two = (augment(block(), how, np.random.default_rng([1, 2, 3])) for _ in range(2))
    np.testing.assert_array_equal(one.pixels, two.pixels)
