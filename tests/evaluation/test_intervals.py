"""Differences of methods from the best one."""

from types import SimpleNamespace

import numpy as np
import pytest

from farther.evaluation.intervals import against_best


@pytest.mark.parametrize("names", [("knn", "energy", "vim"), ("vim", "knn", "energy")])
def test_of_equally_good_methods_the_first_by_name_is_the_best_in_any_order(names):
    value_by_method = {"knn": 0.7, "energy": 0.8, "vim": 0.8}
    results = {}
    replicates = {}
    for name in names:
        values = {"auroc": value_by_method[name]}
        results[name] = SimpleNamespace(value=lambda metric, values=values: values.get(metric.name))
        replicates[name] = {"auroc": np.full(100, value_by_method[name])}
    differences = against_best(results, replicates, "single")
    assert {differences[name]["auroc"].best for name in names} == {"energy"}
