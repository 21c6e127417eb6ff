"""Correlations among metrics."""

import numpy as np
import pytest
from scipy import stats

from farther.errors import ParameterError
from farther.metrics.statistics import correlation


@pytest.mark.parametrize("kind", ["pearson", "spearman"])
def test_correlations_equal_scipys_over_the_rows_that_have_both(kind):
    random = np.random.default_rng(0)
    table = random.normal(size=(40, 2)).round(1) + random.normal(size=(40, 1)).round(1)
    rows = [{"auroc": first, "nose": second} for first, second in table.tolist()]
    rows += [{"auroc": 0.5, "nose": None}, {"nose": 0.5}]
    peer = stats.pearsonr if kind == "pearson" else stats.spearmanr
    found = correlation.matrix(rows, ["auroc", "nose"], kind)
    assert found["auroc"]["nose"] == pytest.approx(peer(*table.T)[0])
    assert found["nose"]["auroc"] == pytest.approx(found["auroc"]["nose"])
    assert found["auroc"]["auroc"] == pytest.approx(1)


def test_two_rows_are_enough_and_one_is_not():
    rows = [{"a": 1, "b": 3}, {"a": 2, "b": 2}]
    found = correlation.matrix(rows, ["a", "b"])
    assert found["a"]["b"] == pytest.approx(-1) and found["b"]["a"] == pytest.approx(-1)
    assert correlation.matrix(rows[:1], ["a", "b"])["a"]["b"] is None


def test_what_does_not_vary_has_no_correlation():
    found = correlation.matrix([{"a": 1, "b": 2}, {"a": 1, "b": 3}], ["a", "b"])
    assert found["a"]["b"] is found["b"]["a"] is None
    assert correlation.matrix([], ["a"]) == {"a": {"a": None}}
    with pytest.raises(ParameterError, match="kendall"):
        correlation.matrix([], ["a"], "kendall")
