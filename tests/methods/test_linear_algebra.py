"""Matrices that make a covariance the identity."""

import numpy as np
import pytest

from farther.methods.linear_algebra import whitened, whitening


def covariance(variances):
    """A covariance with these variances along directions at random."""
    directions = np.linalg.qr(np.random.default_rng(0).normal(size=(len(variances), len(variances))))[0]
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


@pytest.mark.parametrize("variances", [[4.0, 1.0, 0.5, 0.1], [4.0, 1.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1e-9]])
def test_whitened_rows_are_the_rows_times_the_matrix(variances):
    matrix = np.ascontiguousarray(whitening(covariance(np.array(variances))))
    rows = np.random.default_rng(1).normal(size=(7, 4))
    np.testing.assert_allclose(whitened(rows.copy(), matrix), rows @ matrix, rtol=1e-12, atol=1e-12)
    assert whitened(rows[:0].copy(), matrix).shape == (0, matrix.shape[1])


def test_a_square_matrix_is_triangular():
    for variances in ([4.0, 1.0, 0.5, 0.1], [1.0, 1.0, 1.0, 1e-9]):
        matrix = whitening(covariance(np.array(variances)))
        assert (np.tril(matrix, -1) == 0).all()
