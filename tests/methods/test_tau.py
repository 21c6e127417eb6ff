import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.drawn import drawn

from farther.errors import ParameterError
from farther.methods import FitError, threshold

SCORES = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=60)


def test_the_threshold_keeps_19_of_20_scores():
    assert threshold(np.arange(20.0)) == 1.0


def test_ties_at_the_threshold_are_all_kept():
    assert threshold([0.0, 0.0, 1.0, 1.0], keep=0.6) == 0.0
    assert threshold([0.0, 1.0, 1.0, 1.0], keep=0.6) == 1.0


def test_a_decimal_fraction_means_what_it_says():
    # 0.07 · 100 is 7.000000000000001 in binary: rounding that up would keep 8
    assert threshold(np.arange(100.0), keep=0.07) == 93.0


def test_keeping_all_gives_the_smallest_score():
    assert threshold([3.0, -2.0, 5.0], keep=1.0) == -2.0


@drawn
@given(SCORES, st.sampled_from([0.01, 0.5, 0.9, 0.95, 1.0]))
def test_it_is_the_largest_value_that_keeps_the_fraction(scores, keep):
    tau = threshold(np.array(scores), keep)
    assert np.mean(np.array(scores) >= tau) >= keep
    assert np.mean(np.array(scores) >= np.nextafter(tau, np.inf)) < keep


def test_the_gaussian_rule_is_that_of_the_published_code():
    # mean 2, standard deviation 2
    assert threshold([0.0, 4.0, 0.0, 4.0], rule="gaussian") == pytest.approx(
        2 - 1.645 * 2, rel=1e-12
    )


def test_the_gaussian_rule_takes_other_fractions_from_the_normal_distribution():
    assert threshold([0.0, 4.0, 0.0, 4.0], keep=0.5, rule="gaussian") == pytest.approx(2.0)
    assert threshold([0.0, 4.0, 0.0, 4.0], keep=0.99, rule="gaussian") == pytest.approx(
        2 - 2.3263478740 * 2
    )


def test_no_scores_give_no_threshold():
    with pytest.raises(FitError, match="no in-distribution scores"):
        threshold(np.zeros(0))


def test_no_value_keeps_all_of_a_gaussian():
    with pytest.raises(ParameterError, match="gaussian"):
        threshold([1.0, 2.0], keep=1.0, rule="gaussian")


@pytest.mark.parametrize("keep", [0.0, -0.1, 1.1])
def test_a_fraction_outside_0_to_1_is_refused(keep):
    with pytest.raises(ParameterError, match="keep"):
        threshold([1.0], keep=keep)


def test_an_unknown_rule_names_the_known_ones():
    with pytest.raises(ParameterError, match="percentile, gaussian"):
        threshold([1.0], rule="median")
