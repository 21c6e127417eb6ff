"""Box uncertainty, against SciPy's Gaussians; and joined with the entropy of the class."""

import numpy as np
import pytest
from scipy.stats import entropy, multivariate_normal

from farther.errors import DataError
from farther.methods import create


@pytest.fixture
def found(make):
    return make(30, seed=4)


def test_measures_are_those_of_a_gaussian_with_that_covariance(found):
    covariances = [np.diag(variance.astype(np.float64)) for variance in found.box_variance]
    for measure, expected in {
        "determinant": [np.linalg.det(each) for each in covariances],
        "trace": [np.trace(each) for each in covariances],
        "entropy": [multivariate_normal(np.zeros(4), each).entropy() for each in covariances],
    }.items():
        scores = create("box_uncertainty", measure=measure).score(found)
        np.testing.assert_allclose(scores, -np.array(expected), rtol=1e-12)


@pytest.mark.parametrize("weight", [1.0, 4.0])
def test_the_joint_entropy_adds_those_of_class_and_box(found, make, weight):
    powers = np.exp(found.logits.astype(np.float64))
    of_class = entropy(powers, axis=1)  # SciPy scales to a sum of 1
    of_box = -create("box_uncertainty", measure="entropy").score(found)
    scores = create("joint_entropy", weight=weight).fit(make(seed=5)).score(found)
    np.testing.assert_allclose(scores, -(weight * of_class + of_box), rtol=1e-9)


def test_normalised_entropies_reach_from_0_to_1_on_the_fitted_regions(make):
    train, heavy = make(seed=5), 1e9
    scores = create("joint_entropy", normalise=True).fit(train).score(train)
    assert scores.max() <= 0 and scores.min() >= -2
    # With a large weight the box does not count: the entropy of the class reaches from 0 to 1.
    of_class = (
        -create("joint_entropy", normalise=True, weight=heavy).fit(train).score(train) / heavy
    )
    assert of_class.min() == pytest.approx(0, abs=1e-8) and of_class.max() == pytest.approx(
        1, abs=1e-8
    )


def test_a_variance_of_0_is_refused_with_its_row(found):
    variance = found.box_variance.copy()
    variance[7, 2] = 0
    with pytest.raises(DataError, match="row 7: variances are above 0"):
        create("box_uncertainty").score(found.with_columns(box_variance=variance))
