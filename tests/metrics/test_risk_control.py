"""Thresholds that keep a limit on new images: exact values, those of MAPIE, and simulations."""

import numpy as np
import pytest
from mapie.risk_control import BinaryClassificationController, MultiLabelClassificationController
from scipy.stats import beta, binom

from farther.errors import DataError
from farther.metrics.statistics.risk_control import (
    images_needed,
    largest_within,
    smallest_limit,
    upper_bound,
)


def images_with(lost, count):
    return np.concatenate([np.ones(lost), np.zeros(count - lost)])


def test_an_image_that_there_is_not_is_refused():
    with pytest.raises(DataError, match="row 1: field 'image': there are 2 images, found number 2"):
        largest_within([0.1, 0.2], [0, 2], [1, 1], 0.5)


@pytest.mark.parametrize(("lost", "count"), [(0, 59), (3, 100), (12, 250), (40, 41)])
def test_the_bound_of_images_is_that_of_clopper_and_pearson(lost, count):
    expected = beta.ppf(0.95, lost + 1, count - lost)
    assert upper_bound(images_with(lost, count), np.ones(count)) == pytest.approx(expected)


def test_images_that_are_all_lost_and_none_at_all_have_the_bound_one():
    assert upper_bound(np.ones(5), np.ones(5)) == 1
    assert upper_bound(np.zeros(0), np.zeros(0)) == 1


def test_objects_that_are_lost_image_by_image_count_as_images():
    sizes = np.full(100, 4.0)
    lost = np.concatenate([np.full(5, 4.0), np.zeros(95)])
    assert upper_bound(lost, sizes) == pytest.approx(upper_bound(images_with(5, 100), np.ones(100)))
    # Scattered over images they vary less, and are believed no more than that.
    scattered = images_with(20, 100)
    assert upper_bound(scattered, sizes) == pytest.approx(upper_bound(lost, sizes))


@pytest.mark.parametrize("limit", [0.02, 0.05, 0.3])
def test_the_largest_threshold_loses_as_many_images_as_the_binomial_test_allows(limit):
    random = np.random.default_rng(0)
    steps = random.random(250)
    threshold = largest_within(steps, np.arange(250), np.ones(250), limit)
    lost = np.sum(steps < threshold)
    assert binom.cdf(lost, 250, limit) <= 0.05 < binom.cdf(lost + 1, 250, limit)


def test_equal_steps_are_lost_together():
    steps = np.repeat([0.1, 0.2], [3, 97])
    assert largest_within(steps, np.arange(100), np.ones(100), 0.05, "none") == 0.2
    assert largest_within(steps, np.arange(100), np.ones(100), 0.02, "none") == 0.1


def test_without_a_loss_any_threshold_keeps_any_limit_that_the_images_can_show():
    steps = np.full(59, np.inf)
    assert largest_within(steps, np.arange(59), np.ones(59), 0.05) == np.inf
    assert largest_within(steps[:58], np.arange(58), np.ones(58), 0.05) == -np.inf


@pytest.mark.parametrize("guarantee", ["confidence", "expected"])
@pytest.mark.parametrize("limit", [0.01, 0.05, 0.2, 0.5])
def test_the_images_needed_and_the_smallest_limit_are_those_of_the_search(guarantee, limit):
    def keeps(images, limit):
        steps = np.full(images, np.inf)
        return largest_within(steps, np.arange(images), np.ones(images), limit, guarantee) > 0

    needed = images_needed(limit, guarantee)
    assert keeps(needed, limit) and not keeps(needed - 1, limit)
    smallest = smallest_limit(needed, guarantee)
    assert smallest <= limit < smallest_limit(needed - 1, guarantee)
    assert keeps(needed, smallest + 1e-9) and not keeps(needed, smallest - 1e-6)


def test_a_larger_confidence_and_a_smaller_limit_are_stricter():
    random = np.random.default_rng(1)
    steps = random.random(400)
    image = random.integers(0, 150, 400)
    sizes = np.maximum(np.bincount(image, minlength=150), 1)
    thresholds = [
        largest_within(steps, image, sizes, limit, confidence=confidence)
        for limit, confidence in ((0.3, 0.8), (0.3, 0.95), (0.3, 0.999), (0.1, 0.999))
    ]
    assert thresholds == sorted(thresholds, reverse=True)
    assert thresholds[0] > thresholds[-1]


def draw(random, images, scale):
    """Steps of 1 to 8 objects per image, whose levels depend on their image."""
    sizes = random.integers(1, 9, images)
    image = np.repeat(np.arange(images), sizes)
    centre = random.normal(0, scale, images)
    return centre[image] + random.normal(0, 1, len(image)), image, sizes


@pytest.mark.parametrize("scale", [0.3, 2.0])
@pytest.mark.parametrize("images", [60, 300])
def test_the_share_of_new_objects_exceeds_the_limit_in_at_most_five_percent_of_draws(scale, images):
    random = np.random.default_rng(2)
    population, _, _ = draw(random, 200_000, scale)
    population = np.sort(population)
    limit = 0.1
    draws = 400
    exceeding = 0
    for _ in range(draws):
        threshold = largest_within(*draw(random, images, scale), limit)
        exceeding += np.searchsorted(population, threshold) / len(population) > limit
    assert exceeding <= binom.ppf(0.999, draws, 0.05)


def test_in_expectation_the_share_of_new_objects_is_within_the_limit():
    random = np.random.default_rng(3)
    population = np.sort(draw(random, 200_000, 1.0)[0])
    shares = []
    for _ in range(600):
        threshold = largest_within(*draw(random, 40, 1.0), 0.1, "expected")
        shares.append(np.searchsorted(population, threshold) / len(population))
    error = 3 * np.std(shares) / np.sqrt(len(shares))
    assert 0.05 < np.mean(shares) <= 0.1 + error


@pytest.mark.parametrize("limit", [0.02, 0.1, 0.3])
@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_with_confidence_the_threshold_is_that_of_learn_then_test_in_mapie(limit, confidence):
    # A power of two: MAPIE rounds the number of lost images up, after it has divided by this.
    images = 256
    steps = np.random.default_rng(4).permutation(images) / images
    threshold = largest_within(
        steps, np.arange(images), np.ones(images), limit, confidence=confidence
    )

    # Halfway below a step, the same images are lost as at the step. An image is lost where
    # 1 − step is at least 1 − threshold.
    from_strict_to_lax = (np.arange(images) - 0.5) / images
    controller = BinaryClassificationController(
        predict_function=lambda steps: np.stack([steps, 1 - steps], axis=1),
        risk="predicted_positive_fraction",
        target_level=limit,
        confidence_level=confidence,
        best_predict_param_choice="predicted_positive_fraction",
        list_predict_params=1 - from_strict_to_lax,
        fwer_method="fixed_sequence",
    )
    controller.calibrate(steps, np.zeros(images))
    most_lax = 1 - controller.valid_predict_params.min()
    assert most_lax == threshold - 0.5 / images


@pytest.mark.parametrize("limit", [0.03, 0.1, 0.35])
@pytest.mark.parametrize("objects", [1, 4])
def test_in_expectation_the_threshold_is_that_of_conformal_risk_control_in_mapie(limit, objects):
    images = 50
    count = images * objects
    steps = np.random.default_rng(5).permutation(count) / count
    image = np.repeat(np.arange(images), objects)
    threshold = largest_within(steps, image, np.full(images, objects), limit, "expected")

    controller = MultiLabelClassificationController(
        predict_function=lambda steps: steps,
        risk="recall",
        method="crc",
        target_level=1 - limit,
        predict_params=(np.arange(count) - 0.5) / count,
    )
    controller.calibrate(steps.reshape(images, objects), np.ones((images, objects)))
    assert controller.best_predict_param[0] == pytest.approx(threshold - 0.5 / count)
