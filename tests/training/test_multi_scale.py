"""Random sizes and crops of training images, and the decays of the learning rate: SAOD's recipe."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.training.tiny import recipe, run, task

from farther.errors import ParameterError
from farther.naming.registry import build
from farther_training.detection import network_input
from farther_training.multi_scale import ScaleRandomly, cropped, draw, resized
from farther_training.recipe import FasterRCNNRecipe, MultiScale, Recipe
from farther_training.samples import Sample
from farther_training.trainers.faster_rcnn import FasterRCNNRun

BOX = np.array([[10.0, 20.0, 50.0, 60.0]], np.float32)


def sample(height, width):
    return Sample(np.zeros((height, width, 3), np.uint8), BOX, np.array([1]))


def test_the_defaults_are_those_of_saod_appendix_b():
    params = MultiScale()
    assert (params.shorter, params.longest) == ((480, 800), 1333)
    assert (params.shorter_before, params.longest_before, params.crop) == (
        (400, 600),
        4200,
        (384, 600),
    )


def test_the_shorter_side_is_scaled_unless_the_longer_one_would_exceed_its_limit():
    assert resized(sample(100, 150), 480, 1333).pixels.shape == (480, 720, 3)
    assert resized(sample(100, 400), 480, 1333).pixels.shape == (333, 1333, 3)
    np.testing.assert_allclose(resized(sample(100, 150), 200, 1333).boxes, 2 * BOX)


def test_all_sizes_of_a_range_are_drawn():
    random = np.random.default_rng(0)
    assert {draw((3, 5), random) for _ in range(100)} == {3, 4, 5}


def test_boxes_stay_where_their_objects_are():
    """A white rectangle on black is still what its box surrounds, whatever was drawn."""
    pixels = np.zeros((96, 128, 3), np.uint8)
    pixels[24:64, 32:80] = 255
    original = Sample(pixels, np.array([[32.0, 24.0, 80.0, 64.0]], np.float32), np.array([0]))
    params = MultiScale(
        shorter=(60, 140),
        longest=400,
        shorter_before=(80, 120),
        crop=(50, 90),
        crop_probability=0.5,
    )
    compared = 0
    for seed in range(40):
        moved = ScaleRandomly(params)(original, np.random.default_rng(seed))
        for xmin, ymin, xmax, ymax in moved.boxes:
            rows, columns = np.nonzero(moved.pixels[..., 0] > 127)
            np.testing.assert_allclose(
                [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1],
                [xmin, ymin, xmax, ymax],
                atol=1.5,
            )
            compared += 1
    assert compared > 30


def test_a_box_outside_of_the_crop_is_dropped_with_its_label():
    original = sample(100, 150)
    parts = [cropped(original, (15, 15), 0.0, np.random.default_rng(seed)) for seed in range(50)]
    assert {len(part.boxes) for part in parts} == {0, 1}
    assert all(len(part.boxes) == len(part.labels) for part in parts)
    for part in parts:
        assert (part.boxes >= 0).all() and (part.boxes <= 15).all()


def test_a_crop_is_no_larger_than_the_image():
    part = cropped(sample(70, 80), (384, 600), 0.0, np.random.default_rng(0))
    assert part.pixels.shape == (70, 80, 3)


def test_the_network_takes_images_at_the_size_that_was_drawn(tmp_path, blueprint, samples):
    multi_scale = MultiScale(shorter=(40, 48), longest=100, crop_probability=0.0)
    params = recipe(epochs=1, multi_scale=multi_scale)
    network = run(tmp_path, blueprint, samples, params)
    learner = FasterRCNNRun(network, params, task(tmp_path, samples), "", [])
    change = learner.change()
    batch = [change(samples[row], np.random.default_rng(row)) for row in range(4)]
    images, _ = network_input(network.train(), batch, first_label=1)
    sizes = images.image_sizes
    assert sizes == [changed.pixels.shape[:2] for changed in batch]
    assert all(40 <= min(size) <= 48 for size in sizes)
    assert len(set(sizes)) > 1
    # In evaluation mode the one size of the network counts.
    with torch.no_grad():
        assert network.eval().transform([torch.zeros(3, 48, 64)])[0].image_sizes == [(48, 64)]


@pytest.mark.slow
def test_workers_change_nothing_about_sizes(tmp_path, blueprint, samples):
    params = MultiScale(shorter=(40, 64), longest=100, shorter_before=(40, 60), crop=(30, 50))
    alone = run(tmp_path / "a", blueprint, samples, recipe(epochs=1, multi_scale=params))
    helped = run(
        tmp_path / "b", blueprint, samples, recipe(epochs=1, multi_scale=params, workers=1)
    )
    assert torch.equal(
        alone.roi_heads.box_predictor.cls_score.weight,
        helped.roi_heads.box_predictor.cls_score.weight,
    )


# --------------------------------------------------------------------------------------------------
# the learning rate


def test_saods_learning_rate_falls_to_a_tenth_after_epochs_27_and_33():
    saod = Recipe(epochs=36, learning_rate=0.02, warmup_steps=500, decay_epochs=(27, 33))
    steps = 36 * 1000
    after = [0, 499, 500, 26_999, 27_000, 32_999, 33_000, 35_999]
    expected = [0.02 / 500, 0.02, 0.02, 0.02, 0.002, 0.002, 0.0002, 0.0002]
    assert [saod.learning_rate_at(step, steps) for step in after] == pytest.approx(expected)


def test_without_decays_the_schedule_is_the_cosine():
    saod = Recipe(decay_epochs=(8,))
    assert saod.learning_rate_at(9_000, 12_000) == pytest.approx(0.002)
    assert replace(saod, decay_epochs=()).learning_rate_at(6_500, 12_000) == pytest.approx(0.01)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"decay_epochs": [9, 8]}, r"decay_epochs must increase, found \[9, 8\]"),
        ({"decay_epochs": [12]}, r"decay_epochs = \[12\] must be before the last of 12 epochs"),
        (
            {"multi_scale": {"shorter": [800, 480]}},
            r"shorter = \[800, 480\]: the first number is the smaller one",
        ),
        (
            {"multi_scale": {"crop_probability": 2}},
            r"'multi_scale.crop_probability'.*less than or equal to 1, found 2",
        ),
    ],
)
def test_bad_parameters_get_one_message(entry, message):
    with pytest.raises(ParameterError, match=message):
        build(FasterRCNNRecipe, "recipe", entry)
