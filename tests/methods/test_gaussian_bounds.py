"""Densities of many rows are computed of the classes that matter alone."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from farther import methods
from farther.methods.gaussian_bounds import NEGLIGIBLE, GaussianBounds


@pytest.mark.parametrize("shift", [0.0, 9.5, 10.0])
@pytest.mark.parametrize("train", [150, 1500])
@pytest.mark.parametrize("protocol", ["paper", "published-code"])
def test_ddu_of_many_rows_is_that_of_few(make, shift, train, protocol):
    # Where classes are as near as noise, several matter; with few detections none factorises
    # without jitter.
    method = methods.create("ddu", protocol=protocol)
    method.fit(make(train, dimensions=130, seed=1, shift=shift))
    regions = make(600, dimensions=130, seed=2, shift=shift)
    of_few = [method.score(regions[first : first + 100]) for first in range(0, 600, 100)]
    assert_allclose(method.score(regions), np.concatenate(of_few), rtol=1e-12)


def gaussians(count, dimensions, smallest, distance, seed=0):
    """Means and factors of Gaussians whose smallest variance is given."""
    rng = np.random.default_rng(seed)
    means = distance * rng.normal(size=(count, dimensions))
    scales = np.sqrt(np.geomspace(smallest, 1, dimensions))
    factors = []
    for _ in range(count):
        directions = np.linalg.qr(rng.normal(size=(dimensions, dimensions)))[0]
        factors.append(np.linalg.cholesky((directions * scales**2) @ directions.T))
    return means, np.stack(factors)


@pytest.mark.parametrize("smallest", [1.0, 1e-3, 1e-12])
def test_no_class_is_left_out_that_is_within_the_limit_of_the_largest(smallest):
    means, factors = gaussians(6, 40, smallest, distance=0.5)
    h = np.random.default_rng(1).normal(size=(200, 40))
    offsets = np.arange(6.0)
    log_densities = np.empty((200, 6))
    for c in range(6):
        white = np.linalg.solve(factors[c], (h - means[c]).T)
        log_densities[:, c] = offsets[c] - 0.5 * np.sum(white**2, axis=0)

    matter = GaussianBounds(means, factors, offsets).matter(h)

    assert matter[np.arange(200), log_densities.argmax(axis=1)].all()
    is_near = log_densities >= log_densities.max(axis=1, keepdims=True) - NEGLIGIBLE
    assert matter[is_near].all()


def test_classes_far_from_a_row_are_left_out():
    means, factors = gaussians(6, 40, smallest=0.5, distance=20.0)
    matter = GaussianBounds(means, factors, np.zeros(6)).matter(means)
    assert np.array_equal(matter, np.eye(6, dtype=bool))


def test_a_row_that_is_not_a_number_leaves_no_class_out():
    means, factors = gaussians(4, 40, smallest=0.5, distance=20.0)
    assert GaussianBounds(means, factors, np.zeros(4)).matter(np.full((1, 40), np.nan)).all()
