"""Several methods at once."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.drawn import drawn

from farther.errors import ParameterError
from farther.metrics.statistics import bootstrap


def simulated(seed, better=0.0, methods=6, images=60):
    """Means over images of methods, and their replicates; all but the first are equally good."""
    random = np.random.default_rng(seed)
    hard = random.normal(size=(1, images))  # images are hard for all methods alike
    scores = hard + random.normal(size=(methods, images))
    scores[0] += better
    draws = bootstrap.ImageDraws([f"{number:03d}" for number in range(images)], 200, seed=seed)
    values = dict(zip("abcdef", scores.mean(axis=1), strict=True))
    return values, dict(zip("abcdef", scores @ draws.weights.T / images, strict=True))


def told_apart(values, replicates, kind):
    """Methods that are found to be worse than the one that came out best."""
    best = max(values, key=lambda name: values[name])
    found = bootstrap.compare_with(best, values, replicates, kind)
    worse = set()
    for name, difference in found.items():
        if name != best and difference["interval"][1] < 0:
            worse.add(name)
    return worse


def test_equal_methods_are_seldom_told_apart_however_many_there_are():
    wrong = {"single": 0, "all_pairs": 0}
    for trial in range(150):
        values, replicates = simulated(trial)
        for kind in wrong:
            wrong[kind] += bool(told_apart(values, replicates, kind))
    # Six equal methods: one of them looks clearly worse than the best in a third of all samples or
    # more, if each is compared with the best as if there were no other; in 5% if all are allowed
    # for.
    assert wrong["single"] > 40
    assert wrong["all_pairs"] <= 15


def test_a_clearly_better_method_is_told_from_all_others():
    values, replicates = simulated(0, better=2.0)
    assert told_apart(values, replicates, "all_pairs") == set("bcdef")
    found = bootstrap.compare_with("a", values, replicates)
    assert all(found[name]["p"] == 1 / 201 for name in "bcdef")
    assert found["a"] == {"interval": None, "p": 1}


def test_methods_that_always_agree_do_not_differ_and_disturb_no_other():
    values, replicates = simulated(0)
    twice = bootstrap.compare_with(
        "a", values | {"g": values["a"]}, replicates | {"g": replicates["a"]}
    )
    assert twice.pop("g") == {"interval": None, "p": 1}
    assert twice == bootstrap.compare_with("a", values, replicates)


def test_two_methods_are_compared_as_a_pair():
    values, replicates = simulated(3)
    pair = {name: values[name] for name in "ab"}
    found = bootstrap.compare_with("a", pair, replicates)["b"]
    low, high = bootstrap.compare(replicates["b"], replicates["a"])["interval"]
    assert found["interval"] == pytest.approx((low, high), abs=0.06)


def excludes_zero(difference):
    if difference["interval"] is None:  # no difference in any replicate
        return False
    low, high = difference["interval"]
    return not low <= 0 <= high


@drawn
@given(st.integers(0, 2**32 - 1), st.integers(40, 300), st.floats(-3, 3), st.booleans())
def test_the_interval_of_a_pair_excludes_zero_exactly_where_p_is_below_5_per_cent(
    seed, count, shift, ties
):
    drawn = np.random.default_rng(seed).normal(shift, size=count)
    found = bootstrap.compare(drawn.round() if ties else drawn, np.zeros(count))
    assert excludes_zero(found) == (found["p"] < 0.05)


@drawn
@given(st.integers(0, 2**32 - 1), st.integers(20, 300), st.integers(2, 6), st.floats(0, 4))
def test_so_does_that_of_several_methods_at_once(seed, count, methods, better):
    random = np.random.default_rng(seed)
    drawn = random.normal(size=(methods, count)) + better * random.normal(size=(methods, 1))
    names = "abcdef"[:methods]
    values = dict(
        zip(names, drawn.mean(axis=1) + random.normal(scale=0.2, size=methods), strict=True)
    )
    found = bootstrap.compare_with("a", values, dict(zip(names, drawn, strict=True)))
    for difference in found.values():
        assert excludes_zero(difference) == (difference["p"] < 0.05)


def test_the_border_of_both_is_the_same_replicate():
    for below in range(10):
        drawn = np.r_[-np.ones(below), np.ones(199 - below), 2]
        found = bootstrap.compare(drawn, np.zeros(200))
        assert excludes_zero(found) == (below <= 4)  # 2 (4 + 1) / 201 is the largest p below 0.05
        assert found["p"] == 2 * (below + 1) / 201


def test_from_too_few_replicates_there_is_no_interval():
    drawn = np.arange(1.0, 41.0)
    assert bootstrap.compare(drawn[:39], np.zeros(39)) == {"interval": None, "p": 0.05}
    assert bootstrap.compare(drawn, np.zeros(40))["interval"] == (1, 40)
    values, replicates = simulated(0, better=3.0)
    few = {name: drawn[:19] for name, drawn in replicates.items()}
    assert bootstrap.compare_with("a", values, few)["b"] == {"interval": None, "p": 0.05}


def test_methods_that_differ_by_rounding_alone_do_not_differ():
    values, replicates = simulated(0)
    pair = {"a": replicates["a"], "b": replicates["a"] + 1e-16}
    assert bootstrap.compare(pair["b"], pair["a"]) == {"interval": None, "p": 1}
    found = bootstrap.compare_with("a", {"a": values["a"], "b": values["a"] + 1e-16}, pair)
    assert found["b"] == {"interval": None, "p": 1}


def test_a_difference_that_is_the_same_in_all_replicates_has_no_interval():
    found = bootstrap.compare(np.ones(199), np.zeros(199))
    assert found == {"interval": None, "p": pytest.approx(2 / 200)}
    replicates = {"a": np.zeros(199), "b": np.ones(199)}
    found = bootstrap.compare_with("a", {"a": 0.0, "b": 1.0}, replicates)
    assert found["b"] == {"interval": None, "p": pytest.approx(1 / 200)}


def test_a_metric_that_no_replicate_has_is_compared_with_nothing():
    nothing = dict.fromkeys("ab", np.full(5, np.nan))
    found = bootstrap.compare_with("a", {"a": 0.0, "b": 0.0}, nothing)
    assert found["b"] == {"interval": None, "p": None}


def test_wrong_inputs_are_refused():
    with pytest.raises(ParameterError, match="same draws"):
        bootstrap.compare_with("a", {"a": 0.0, "b": 0.0}, {"a": np.zeros(3), "b": np.zeros(4)})
    with pytest.raises(ParameterError, match="unknown comparisons 'twice'"):
        bootstrap.compare_with("a", {"a": 0.0}, {"a": np.zeros(3)}, "twice")
    for level in (0, 1):
        with pytest.raises(ParameterError, match=f"level: .*found {level}"):
            bootstrap.compare_with("a", {"a": 0.0}, {"a": np.zeros(3)}, level=level)
        with pytest.raises(ParameterError, match=f"level: .*found {level}"):
            bootstrap.compare(np.zeros(3), np.zeros(3), level)


@pytest.mark.parametrize("kind", ["all_pairs", "single"])
def test_comparisons_with_each_method_are_those_with_one_after_the_other(kind):
    values, replicates = simulated(3, better=0.2)
    replicates["c"] = np.where(np.arange(200) == 7, np.nan, replicates["c"])
    values["f"] = values["e"]
    replicates["f"] = replicates["e"]
    each = bootstrap.compare_with_each(values, replicates, kind)
    assert list(each) == list(values)
    for name, differences in each.items():
        assert differences == bootstrap.compare_with(name, values, replicates, kind)


def test_comparisons_with_each_method_need_the_same_draws_and_may_be_of_none():
    values, replicates = simulated(1)
    replicates["b"] = replicates["b"][:-1]
    with pytest.raises(ParameterError, match="the same draws"):
        bootstrap.compare_with_each(values, replicates)
    assert bootstrap.compare_with_each({}, {}) == {}
    absent = {name: np.full(5, np.nan) for name in values}
    for differences in bootstrap.compare_with_each(values, absent).values():
        assert set(map(str, differences.values())) == {"{'interval': None, 'p': None}"}
