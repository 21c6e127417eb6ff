"""Mean ranks, compared with Demšar's tables and SciPy."""

import numpy as np
import pytest
from scipy.stats import friedmanchisquare, rankdata

from farther.errors import ParameterError
from farther.metrics.statistics.ranking import average_ranks, mean_ranks

#: Demšar (2006), Table 5 (a): critical values of the Nemenyi test at 0.05 for 2 to 10 methods.
DEMSAR = {2: 1.960, 3: 2.343, 4: 2.569, 5: 2.728, 6: 2.850, 7: 2.949, 8: 3.031, 9: 3.102, 10: 3.164}


@pytest.mark.parametrize("methods", DEMSAR)
def test_the_critical_difference_is_demsars(methods):
    values = np.random.default_rng(0).random((12, methods))
    expected = DEMSAR[methods] * np.sqrt(methods * (methods + 1) / (6 * 12))
    assert mean_ranks(values).critical_difference == pytest.approx(expected, abs=1e-3)


def test_friedmans_test_is_scipys_with_and_without_ties():
    random = np.random.default_rng(1)
    for values in (random.random((9, 4)), random.integers(0, 3, (9, 4)).astype(float)):
        assert mean_ranks(values).p == pytest.approx(friedmanchisquare(*values.T).pvalue)


def test_the_best_has_rank_1_in_either_direction():
    values = np.array([[0.1, 0.5, 0.5], [0.2, 0.9, 0.4]])
    assert mean_ranks(values).ranks.tolist() == [3, 1.25, 1.75]
    lowest = mean_ranks(values, higher_is_better=False)
    assert lowest.ranks.tolist() == rankdata(values, axis=1).mean(axis=0).tolist()


def test_equal_values_share_the_mean_of_their_ranks_as_in_scipy():
    random = np.random.default_rng(3)
    for values in (random.random(20), random.integers(-2, 2, 30) * 0.0, random.integers(0, 5, 30)):
        assert average_ranks(values).tolist() == rankdata(values).tolist()


def test_equal_methods_do_not_differ():
    assert mean_ranks(np.ones((3, 4))).p == 1


@pytest.mark.parametrize(
    "values", [np.ones((1, 3)), np.ones((3, 1)), np.array([[1, np.nan], [1, 2]])]
)
def test_too_little_is_refused(values):
    with pytest.raises(ParameterError, match="at least 2 methods in at least 2 rows"):
        mean_ranks(values)
