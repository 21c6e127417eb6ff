"""Many classes and rows are computed in other steps than few, to the same scores."""

import numpy as np
import pytest

from farther import methods
from farther.methods.arrays import largest_probability, replaced, softmax
from farther.methods.linear_algebra import add_class_sums, class_means

#: Parameters that suit the small tables of these tests.
PARAMS: dict[str, dict] = {
    "knn": {"k": 3},
    "temperature_scaling": {"temperature": 2.0},
    "gram": {"layer": ["shallow", "deep"]},
    "fused": {"of": ["energy", "mahalanobis"]},
    "cascade": {"first": "energy", "then": "mahalanobis"},
}
#: Limits from which on the steps are others.
LIMITS = {
    "farther.methods.base.MANY_CLASSES": 1,
    "farther.methods.base.BLOCK": 100,
    "farther.methods.lard.MAX_KEPT": 0,
    "farther.methods.linear_algebra.MAX_CLASSES_OF_PRODUCT": 1,
    "farther.methods.rows.MAX_CLASSES_TRANSPOSED": 1,
}


def applicable(regions):
    fitted = {}
    for name in methods.names():
        if name == "imported":
            continue
        method = methods.create(name, **PARAMS.get(name, {}))
        if method.computes and method.wants_pass is None and not method.missing(regions):
            fitted[name] = method
    return fitted


def test_scores_do_not_depend_on_the_number_of_classes_from_which_steps_change(make, monkeypatch):
    train = make(seed=1)
    test = make(seed=2, shift=1.0)
    expected = {name: each.fit(train).score(test) for name, each in applicable(train).items()}
    assert len(expected) > 30

    for limit, value in LIMITS.items():
        monkeypatch.setattr(limit, value)
    for name, method in applicable(train).items():
        np.testing.assert_allclose(
            method.fit(train).score(test), expected[name], rtol=1e-9, atol=1e-9, err_msg=name
        )


@pytest.mark.parametrize("classes", [3, 200])
def test_class_sums_are_those_of_each_class_alone(classes):
    rng = np.random.default_rng(0)
    block = rng.normal(size=(500, 4))
    labels = rng.integers(classes - 1, size=500)  # the last class has no row
    sums = np.ones((classes, 4))
    add_class_sums(sums, block, labels)
    for c in range(classes):
        np.testing.assert_allclose(sums[c], 1 + block[labels == c].sum(axis=0), atol=1e-12)


def test_means_of_many_classes_over_several_blocks():
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(600, 3))
    labels = rng.integers(100, size=600)
    halves = [(vectors[:250], labels[:250]), (vectors[250:], labels[250:])]
    counts, means = class_means(iter(halves), 101)
    assert counts.tolist() == np.bincount(labels, minlength=101).tolist()
    np.testing.assert_allclose(means[7], vectors[labels == 7].mean(axis=0))
    assert means[100].tolist() == [0.0, 0.0, 0.0]


def test_the_largest_probability_is_that_of_the_softmax():
    logits = np.random.default_rng(0).normal(scale=50, size=(40, 7))
    expected = softmax(logits).max(axis=1)
    assert largest_probability(logits).tolist() == expected.tolist()


def test_values_are_replaced_row_by_row():
    values = np.array([[1.0, 2.0], [3.0, 4.0]])
    mask = np.array([[True, False], [True, True]])
    assert replaced(values, mask, np.array([[10.0], [20.0]])).tolist() == [[10, 2], [20, 20]]
