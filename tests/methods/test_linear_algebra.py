"""Matrices that make a covariance the identity."""

import numpy as np
import pytest

from farther import methods
from farther.methods.examples import toy_regions
from farther.methods.linear_algebra import whitened, whitening


def covariance(variances):
    """A covariance with these variances along directions at random."""
    directions = np.linalg.qr(
        np.random.default_rng(0).normal(size=(len(variances), len(variances)))
    )[0]
    made = directions * variances @ directions.T
    return (made + made.T) / 2


@pytest.mark.parametrize(
    ("variances", "rank"),
    [
        ([4.0, 1.0, 0.5, 0.1], 4),
        ([4.0, 1.0, 0.0, 0.0], 2),
        ([1.0, 1.0, 1.0, 1e-9], 4),  # nearly flat, but not quite
        ([0.0, 0.0, 0.0, 0.0], 0),
    ],
)
def test_it_is_a_root_of_the_pseudo_inverse(variances, rank):
    sigma = covariance(np.array(variances))
    matrix = whitening(sigma)
    assert matrix.shape == (4, rank)
    values, directions = np.linalg.eigh(sigma)
    kept = np.argsort(values)[4 - rank :]
    expected = directions[:, kept] / values[kept] @ directions[:, kept].T
    np.testing.assert_allclose(matrix @ matrix.T, expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    "variances", [[4.0, 1.0, 0.5, 0.1], [4.0, 1.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1e-9]]
)
def test_whitened_rows_are_the_rows_times_the_matrix(variances):
    matrix = np.ascontiguousarray(whitening(covariance(np.array(variances))))
    rows = np.random.default_rng(1).normal(size=(7, 4))
    np.testing.assert_allclose(whitened(rows.copy(), matrix), rows @ matrix, rtol=1e-12, atol=1e-12)
    assert whitened(rows[:0].copy(), matrix).shape == (0, matrix.shape[1])


def test_a_square_matrix_is_triangular():
    for variances in ([4.0, 1.0, 0.5, 0.1], [1.0, 1.0, 1.0, 1e-9]):
        matrix = whitening(covariance(np.array(variances)))
        assert (np.tril(matrix, -1) == 0).all()


def test_a_sum_that_a_layer_norm_keeps_constant_is_ignored_although_float32_rounds_it():
    """Its variance is that of rounding. scikit-learn, which OpenOOD calls, ignores it too."""
    from sklearn.covariance import EmpiricalCovariance

    drawn = np.random.default_rng(0).normal(size=(2000, 96))
    normed = (drawn - drawn.mean(axis=1, keepdims=True)) / drawn.std(axis=1, keepdims=True)
    features = normed.astype(np.float32)
    empirical = EmpiricalCovariance().fit(features.astype(np.float64))
    variances = np.linalg.eigvalsh(empirical.covariance_)
    assert 0 < variances[0] < 1e-13 and variances[1] > 0.1
    np.linalg.cholesky(empirical.covariance_)  # which does not notice
    matrix = whitening(empirical.covariance_)
    assert matrix.shape == (96, 95)
    np.testing.assert_allclose(matrix @ matrix.T, empirical.precision_, rtol=1e-9, atol=1e-9)


def test_rounding_does_not_move_a_mahalanobis_distance_of_layer_normed_features():
    drawn = np.random.default_rng(0).normal(size=(2100, 96))
    normed = (drawn - drawn.mean(axis=1, keepdims=True)) / drawn.std(axis=1, keepdims=True)
    train, exact = normed[:2000].astype(np.float32), normed[2000:]
    fitted = methods.create("mahalanobis").fit(
        toy_regions(features=train, label=np.arange(2000) % 3)
    )
    scores = [
        fitted.score(toy_regions(features=rounded, label=np.zeros(100, int)))
        for rounded in (
            exact.astype(np.float32),
            np.nextafter(exact.astype(np.float32), np.float32(9)),
        )
    ]
    np.testing.assert_allclose(*scores, rtol=1e-5)
