"""Several methods at once."""

import numpy as np
import pytest

from farther.errors import ParameterError
from farther.metrics import bootstrap


def simulated(seed, better=0.0, methods=6, images=60):
    """Means over images of methods that are equally good, but for the first, and their replicates."""
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
    return {name for name, difference in found.items() if difference["interval"][1] < 0}


def test_equal_methods_are_seldom_told_apart_however_many_there_are():
    wrong = {"single": 0, "all_pairs": 0}
    for trial in range(150):
        values, replicates = simulated(trial)
        for kind in wrong:
            wrong[kind] += bool(told_apart(values, replicates, kind))
    # Six equal methods: one of them looks clearly worse than the best in a third of all samples or more, if each is
    # compared with the best as if there were no other; in 5% if all are allowed for.
    assert wrong["single"] > 40
    assert wrong["all_pairs"] <= 15


def test_a_clearly_better_method_is_told_from_all_others():
    values, replicates = simulated(0, better=2.0)
    assert told_apart(values, replicates, "all_pairs") == set("bcdef")
    found = bootstrap.compare_with("a", values, replicates)
    assert all(found[name]["p"] == 1 / 201 for name in "bcdef")
    assert found["a"] == {"interval": (0, 0), "p": 1}


def test_methods_that_always_agree_do_not_differ_and_disturb_no_other():
    values, replicates = simulated(0)
    twice = bootstrap.compare_with("a", values | {"g": values["a"]}, replicates | {"g": replicates["a"]})
    assert twice.pop("g") == {"interval": (0, 0), "p": 1}
    assert twice == bootstrap.compare_with("a", values, replicates)


def test_two_methods_are_compared_as_a_pair():
    values, replicates = simulated(3)
    pair = {name: values[name] for name in "ab"}
    found = bootstrap.compare_with("a", pair, replicates)["b"]
    low, high = bootstrap.compare(replicates["b"], replicates["a"])["interval"]
    assert found["interval"] == pytest.approx((low, high), abs=0.06)


def test_a_metric_that_no_replicate_has_is_compared_with_nothing():
    nothing = dict.fromkeys("ab", np.full(5, np.nan))
    found = bootstrap.compare_with("a", {"a": 0.0, "b": 0.0}, nothing)
    assert found["b"] == {"interval": None, "p": None}


def test_wrong_inputs_are_refused():
    with pytest.raises(ParameterError, match="same draws"):
        bootstrap.compare_with("a", {"a": 0.0, "b": 0.0}, {"a": np.zeros(3), "b": np.zeros(4)})
    with pytest.raises(ParameterError, match="unknown comparisons 'twice'"):
        bootstrap.compare_with("a", {"a": 0.0}, {"a": np.zeros(3)}, "twice")
    with pytest.raises(ParameterError, match="level"):
        bootstrap.compare_with("a", {"a": 0.0}, {"a": np.zeros(3)}, level=0)
