"""Thresholds by conformal risk control, and the guarantee on simulated exchangeable images."""

import numpy as np
import pytest

from farther.metrics.statistics.conformal import (
    corrected,
    images_needed,
    largest_within,
)


def test_the_largest_threshold_leaves_the_next_loss_out():
    steps, losses = np.array([5.0, 1.0, 3.0]), np.array([0.25, 0.5, 0.25])
    assert largest_within(steps, losses, 0.0) == 1.0
    assert largest_within(steps, losses, 0.5) == 3.0
    assert largest_within(steps, losses, 0.75) == 5.0
    assert largest_within(steps, losses, 1.0) == np.inf
    assert largest_within(steps, losses, -0.01) == -np.inf


def test_losses_at_one_threshold_arise_together():
    assert largest_within(np.array([1.0, 2.0, 2.0]), np.full(3, 1 / 3), 0.7) == 2.0


def test_losses_that_no_threshold_avoids_or_reaches_are_counted():
    steps = np.array([-np.inf, 1.0, 2.0, np.inf])
    assert largest_within(steps, np.full(4, 0.25), limit=0.5) == 2
    assert largest_within(steps, np.full(4, 0.25), limit=0.2) == -np.inf


def test_as_few_images_as_are_needed_allow_no_loss_at_all():
    for limit in (0.01, 0.02, 0.05, 0.3):
        needed = images_needed(limit)
        assert corrected(limit, needed - 1) < -1e-9
        assert corrected(limit, needed) >= -1e-9
    assert images_needed(0.01) == 99
    assert corrected(0.01, 0) < 0


def draw(random, images):
    """Two objects per image whose steps depend on each other, and each one's share."""
    steps = random.normal(random.normal(size=(images, 1)), 0.5, (images, 2))
    return steps.ravel(), np.full(2 * images, 0.5 / images)


@pytest.mark.parametrize(("limit", "images"), [(0.1, 30), (0.05, 19), (0.02, 120)])
def test_the_expected_loss_of_new_images_is_within_the_limit(limit, images):
    random = np.random.default_rng(0)
    expected, uncorrected = [], []
    for _ in range(1500):
        steps, losses = draw(random, images)
        new, share = draw(random, 200)
        for target, found in ((limit, uncorrected), (corrected(limit, images), expected)):
            threshold = largest_within(steps, losses, target)
            found.append(share[new < threshold].sum())
    error = 3 * np.std(expected) / np.sqrt(len(expected))
    assert np.mean(expected) <= limit + error
    # No less than the theorem's lower bound, limit − 2 / (n + 1), and without the correction the
    # limit is exceeded.
    assert np.mean(expected) >= limit - 2 / (images + 1) - error
    assert np.mean(uncorrected) > limit + error
