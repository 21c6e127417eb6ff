"""Moments of several outputs of a network, worked out by hand."""

import numpy as np
import pytest

from farther.detectors.passes.moments import SMALLEST_VARIANCE, Moments
from farther.tables import Header


def test_entropies_of_a_head_with_a_sigmoid_are_those_of_binary_variables():
    """By hand: p of the first class is 0.5 in one pass and 1 in the other, so p̄ = 0.75."""
    moments = Moments(Header(classes=("cat", "dog"), activation="sigmoid"))
    for cat in (0.0, 1000.0):
        moments.add(np.array([[cat, -1000.0]]), np.zeros((1, 4)))
    columns = moments.columns()
    total = -(0.75 * np.log(0.75) + 0.25 * np.log(0.25))
    assert columns["predictive_entropy"] == pytest.approx(total)
    assert columns["mutual_information"] == pytest.approx(total - np.log(2) / 2)


def test_a_region_that_an_output_does_not_know_keeps_its_mean():
    moments = Moments(Header(classes=("cat", "dog")))
    moments.add(np.array([[1.0, 0], [3, 0]]), np.zeros((2, 4)))
    moments.add(np.array([[5.0, 0]]), np.full((1, 4), 2.0), np.array([1]))
    columns = moments.columns()
    np.testing.assert_allclose(columns["logits"], [[1, 0], [4, 0]])
    np.testing.assert_allclose(columns["box_variance"], [[SMALLEST_VARIANCE] * 4, [1] * 4])
    assert columns["mutual_information"][0] == 0 < columns["mutual_information"][1]
