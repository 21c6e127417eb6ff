"""More dimensions asked for than there are."""

import numpy as np
import pytest

from farther import methods


@pytest.mark.parametrize("name", ["vim", "residual"])
@pytest.mark.parametrize("dim", [12, 13, 1000])
def test_a_subspace_as_large_as_the_space_is_taken_for_half_of_it(make, name, dim):
    train, test = make(200, dimensions=12, seed=1), make(50, dimensions=12, seed=2)
    expected = methods.create(name, dim=6).fit(train).score(test)
    np.testing.assert_array_equal(methods.create(name, dim=dim).fit(train).score(test), expected)
    assert len(set(expected)) == 50  # a residual of nothing would be 0 for all


@pytest.mark.parametrize("protocol", ["paper", "published-code"])
@pytest.mark.parametrize("name", ["vim", "residual"])
def test_the_protocols_own_dimension_is_never_larger_than_the_space(make, name, protocol):
    train = make(100, dimensions=12, seed=1)
    assert methods.create(name, protocol=protocol).fit(train).residual_.shape == (12, 6)


@pytest.mark.parametrize("name", ["lard_knn", "lard_mahalanobis", "lard_gmm", "oodl"])
def test_more_components_than_there_are_values_are_all_of_them(make, name):
    train, test = make(200, seed=1), make(50, seed=2)
    width = train.features.shape[1] if name == "oodl" else train.latent.shape[1]
    every, more = (
        methods.create(name, components=count).fit(train) for count in (width, width + 50)
    )
    np.testing.assert_allclose(more.score(test), every.score(test), rtol=1e-9)


@pytest.mark.parametrize("name", ["gen", "openmax"])
def test_more_classes_than_there_are_are_all_of_them(make, name):
    train, test = make(200, classes=5, seed=1), make(50, classes=5, seed=2)
    field = {"gen": "m", "openmax": "alpha"}[name]
    every, more = (methods.create(name, **{field: count}).fit(train) for count in (5, 50))
    np.testing.assert_allclose(more.score(test), every.score(test), rtol=1e-12)
