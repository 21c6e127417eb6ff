"""Misclassification detection, against scikit-learn and all orders of equal scores."""

from fractions import Fraction
from itertools import accumulate, pairwise, permutations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from farther.metrics.ood import misclassification
from farther.metrics.weighting import RowWeights
from farther.tables import Objects, Regions


def risk_coverage_area(errors: np.ndarray) -> float:
    return float(np.mean(np.cumsum(errors) / np.arange(1, len(errors) + 1)))


def test_aurc_is_the_mean_over_all_orders_of_equal_scores():
    scores, correct = (
        np.array([0.9, 0.5, 0.5, 0.5, 0.1]),
        np.array([True, False, True, False, True]),
    )
    areas = [
        risk_coverage_area(~correct[list(order)])
        for order in permutations(range(5))
        if all(scores[first] >= scores[second] for first, second in pairwise(order))
    ]
    assert misclassification.evaluate(scores, correct)["aurc"] == pytest.approx(
        np.mean(areas), abs=1e-12
    )


def test_e_aurc_is_zero_for_a_score_that_ranks_all_errors_last_and_positive_otherwise():
    random = np.random.default_rng(0)
    correct = random.random(200) < 0.8
    perfect = np.where(correct, 1.0, 0.0) + random.random(200) * 0.5
    assert misclassification.evaluate(perfect, correct)["e_aurc"] == pytest.approx(0, abs=1e-12)
    best = risk_coverage_area(np.sort(~correct))
    scores = random.random(200)
    found = misclassification.evaluate(scores, correct)
    assert found["e_aurc"] == pytest.approx(found["aurc"] - best, abs=1e-12)
    assert found["aurc"] == pytest.approx(
        risk_coverage_area(~correct[np.argsort(-scores)]), abs=1e-12
    )


@pytest.mark.parametrize("largest", [0, 1, 2, 40, 500])
def test_harmonic_numbers_are_sums_of_fractions(largest):
    numbers = np.arange(largest + 1)
    fractions = [Fraction(0), *(Fraction(1, number) for number in range(1, largest + 1))]
    exact = [float(total) for total in accumulate(fractions)]
    assert misclassification._harmonic(numbers) == pytest.approx(exact, rel=1e-14, abs=1e-15)


def test_harmonic_numbers_of_fractions_and_of_large_numbers_are_those_of_the_table():
    numbers = np.array([0, 3, 20, misclassification.LARGE - 1])
    of_table = misclassification._harmonic(numbers)
    as_floats = misclassification._harmonic(numbers.astype(float))
    assert of_table == pytest.approx(as_floats, rel=1e-13, abs=1e-15)
    with_larger = misclassification._harmonic(np.append(numbers, misclassification.LARGE))
    assert of_table == pytest.approx(with_larger[:-1], rel=1e-13, abs=1e-15)


def test_auroc_is_that_of_scikit_learn():
    random = np.random.default_rng(1)
    scores, correct = random.integers(0, 20, 300).astype(float), random.random(300) < 0.6
    assert misclassification.evaluate(scores, correct)["auroc"] == pytest.approx(
        roc_auc_score(correct, scores)
    )


def test_a_replicate_equals_the_metrics_of_the_drawn_rows():
    random = np.random.default_rng(2)
    scores, correct = random.integers(0, 6, 30).astype(float), random.random(30) < 0.7
    drawn = random.multinomial(30, np.full(30, 1 / 30), size=4).astype(np.int32)
    found = misclassification.evaluate(scores, correct, RowWeights(drawn, np.arange(30)))
    for replicate, times in enumerate(drawn):
        rows = np.repeat(np.arange(30), times)
        expected = misclassification.evaluate(scores[rows], correct[rows])
        assert {name: values[replicate] for name, values in found.items()} == pytest.approx(
            expected, abs=1e-12
        )


def test_a_side_without_regions_gives_no_value():
    found = misclassification.evaluate(np.array([1.0, 2.0]), np.array([True, True]))
    assert set(found.values()) == {None}


def test_a_region_is_correct_if_it_has_the_class_of_the_object_that_it_overlaps_most():
    objects = Objects(
        image_id=["a", "a"],
        object_id=[0, 1],
        box=[[0, 0, 10, 10], [20, 0, 30, 10]],
        category=["cat", "dog"],
    )
    boxes = [[0, 0, 10, 9], [20, 0, 30, 9], [50, 50, 60, 60]]
    regions = Regions(
        image_id=["a"] * 3, region_id=[0, 1, 2], box=boxes, score=[0.9, 0.8, 0.7], label=[0, 0, 0],
        logits=np.zeros((3, 2)), classes=("cat", "dog"),
    )  # fmt: skip
    assert misclassification.is_correct(objects, regions).tolist() == [True, False, False]
