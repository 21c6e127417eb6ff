"""Metrics of ID against OOD scores."""

import numpy as np
import pytest
import torch
import torchmetrics.functional
from sklearn.metrics import (
    auc,
    average_precision_score,
    precision_recall_curve,
    roc_auc_score,
    roc_curve,
)
from tests.support.cases import slow_but

from farther.errors import DataError, ParameterError
from farther.metrics import ood


def scores(seed, ties):
    random = np.random.default_rng(seed)
    decimals = 1 if ties else 12
    return random.normal(1, 1, 300).round(decimals), random.normal(0, 1.5, 170).round(decimals)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("seed", slow_but((0,), range(3)))
def test_areas_equal_scikit_learns(seed, ties):
    inside, outside = scores(seed, ties)
    found = ood.evaluate(inside, outside)
    truth, together = (
        np.repeat([1, 0], [len(inside), len(outside)]),
        np.concatenate([inside, outside]),
    )
    assert found["auroc"] == pytest.approx(roc_auc_score(truth, together), abs=1e-12)
    assert ood.auroc(inside, outside) == pytest.approx(found["auroc"], abs=1e-12)
    assert found["aupr_in"] == pytest.approx(average_precision_score(truth, together), abs=1e-12)
    assert found["aupr_out"] == pytest.approx(
        average_precision_score(1 - truth, -together), abs=1e-12
    )


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("seed", slow_but((0,), range(3)))
def test_openoods_conventions_are_those_of_its_code(seed, ties):
    inside, outside = scores(seed, ties)
    truth, together = (
        np.repeat([0, 1], [len(inside), len(outside)]),
        np.concatenate([inside, outside]),
    )
    found = ood.evaluate(inside, outside, aupr="trapezoid")
    fpr, tpr, _ = roc_curve(truth, -together, drop_intermediate=False)
    assert found["fpr95_ood_positive"] == pytest.approx(fpr[np.argmax(tpr >= 0.95)], abs=1e-12)
    for name, positive, sign in (("aupr_in", 1 - truth, 1), ("aupr_out", truth, -1)):
        precision, recall, _ = precision_recall_curve(positive, sign * together)
        assert found[name] == pytest.approx(auc(recall, precision), abs=1e-12)
    step = ood.evaluate(inside, outside)
    unchanged = set(step) - {"aupr_in", "aupr_out"}
    assert {name: found[name] for name in unchanged} == {name: step[name] for name in unchanged}


def test_the_two_conventions_of_fpr95_may_be_far_apart():
    # Nine of ten ID regions are far above all OOD regions, one lies below them.
    found = ood.evaluate([9, 9, 9, 9, 9, 9, 9, 9, 9, 0], [1, 2, 3])
    assert (found["fpr95"], found["fpr95_ood_positive"]) == (1.0, 0.1)


def test_an_unknown_area_lists_the_known_ones():
    with pytest.raises(ParameterError, match="step, trapezoid"):
        ood.evaluate([1.0], [0.0], aupr="simpson")


def test_torchmetrics_takes_a_sigmoid_that_saturates_far_from_zero():
    # Distances such as those of Mahalanobis or DDU, which separate ID from OOD without an error,
    # far above 0.
    inside, outside = np.linspace(50, 55, 40), np.linspace(60, 65, 40)
    target = torch.tensor([0] * 40 + [1] * 40)

    def published(distances):
        return torchmetrics.functional.auroc(
            torch.tensor(distances, dtype=torch.float32), target, task="binary"
        ).item()

    together = np.concatenate([inside, outside])
    assert published(together) == 0.5  # every sigmoid is 1 in float32
    fpr, tpr, _ = torchmetrics.functional.roc(
        torch.tensor(together, dtype=torch.float32), target, task="binary"
    )
    assert fpr[tpr >= 0.95][0] == 1
    assert published(together - together.min()) < 1  # most are
    assert (
        published((together - together.min()) / np.ptp(together)) == 1
    )  # in [0, 1] there is no sigmoid
    found = ood.evaluate(-inside, -outside)
    assert (found["auroc"], found["fpr95"]) == (1, 0)


def test_metrics_of_a_case_worked_by_hand():
    # Pairs (ID, OOD): 3 beats both; each 2 beats the 1 and ties with the 2. So (2 + 1.5 + 1.5) / 6.
    found = ood.evaluate([3, 2, 2], [2, 1])
    assert found["auroc"] == pytest.approx(5 / 6)
    # All ID scores are kept only from 2 down, where one of the two OOD scores comes along.
    assert found["fpr95"] == 0.5
    # At 2: TPR 1, FPR 1/2: error 1/4. At 3: TPR 1/3, FPR 0: error 1/3.
    assert found["detection_error"] == pytest.approx(0.25)
    # All ID scores are kept from 2 down: TPR 1, FPR 1/2.
    assert found["detection_error95"] == pytest.approx(0.25)
    # Steps of recall 1/3 at precision 1, and 2/3 at precision 3/4.
    assert found["aupr_in"] == pytest.approx(1 / 3 + 2 / 3 * 3 / 4)
    # From below: 1 is OOD (recall 1/2, precision 1), then 2, 2, 2 come together (recall 1,
    # precision 2/4).
    assert found["aupr_out"] == pytest.approx(1 / 2 + 1 / 2 * 2 / 4)


@pytest.mark.parametrize("rate", [0.5, 0.8, 0.95, 0.99, 1.0])
def test_fpr_is_the_smallest_of_all_thresholds_that_keep_enough(rate):
    inside, outside = scores(4, ties=True)
    possible = [
        np.mean(outside >= t)
        for t in np.concatenate([inside, outside])
        if np.mean(inside >= t) >= rate
    ]
    assert ood.fpr_at(inside, outside, rate) == min(possible)


def test_nineteen_of_twenty_are_ninety_five_per_cent():
    inside = np.arange(20.0)
    assert ood.fpr_at(inside, np.array([0.5]), 0.95) == 0.0
    assert ood.evaluate(inside, [0.5])["fpr95"] == 0.0
    assert ood.evaluate(inside, [0.5, 1.5])["fpr95"] == 0.5
    assert ood.evaluate(inside, [1.5])["fpr95"] == 1.0


@pytest.mark.parametrize("regions", range(1, 80))
def test_fpr95_is_decided_by_the_quotient(regions):
    # 0.95 · 60 is 56.99…, and 57 / 60 is 0.95: neither rounding may move the threshold.
    inside = np.arange(float(regions))
    between = np.arange(regions) - 0.5
    first = next(kept for kept in range(1, regions + 1) if kept / regions >= 0.95)
    assert ood.evaluate(inside, between)["fpr95"] == (first - 1) / regions


def test_detection_error_at_tpr_95_is_that_of_the_printed_tables():
    # Recalcati et al., Tables VI and VII: 46 of 48 printed cells are 2.5 + FPR95 / 2, in per cent.
    id_scores = np.arange(100.0)
    ood_scores = np.arange(0.0, 40.0) + 0.5
    found = ood.evaluate(id_scores, ood_scores)
    # The 95 highest ID scores begin at 5; 35 of the 40 OOD scores lie above.
    assert found["fpr95"] == pytest.approx(35 / 40)
    assert found["detection_error95"] == pytest.approx(0.025 + 35 / 40 / 2)
    # Over all thresholds: 40 rejects 40 of 100 ID scores and all OOD scores.
    assert found["detection_error"] == pytest.approx(0.20)


def test_a_score_that_separates_is_perfect_and_its_opposite_is_worst():
    good = ood.evaluate([2, 3], [0, 1])
    assert (good["auroc"], good["fpr95"], good["detection_error"]) == (1, 0, 0)
    bad = ood.evaluate([0, 1], [2, 3])
    assert (bad["auroc"], bad["fpr95"], bad["detection_error"]) == (0, 1, 0.5)


def test_a_constant_score_tells_nothing():
    found = ood.evaluate(np.ones(7), np.ones(5))
    assert (found["auroc"], found["fpr95"], found["detection_error"]) == (0.5, 1, 0.5)


def test_the_order_of_rows_and_growing_functions_of_the_score_change_nothing():
    inside, outside = scores(5, ties=True)
    before = ood.evaluate(inside, outside)
    assert ood.evaluate(np.sort(inside), outside[::-1]) == before
    after = ood.evaluate(np.exp(inside), np.exp(outside))
    assert after == pytest.approx(before)


@pytest.mark.parametrize(("inside", "outside"), [([], [1.0]), ([1.0], []), ([], [])])
def test_nothing_to_compare_gives_none_not_nan(inside, outside):
    assert set(ood.evaluate(inside, outside).values()) == {None}
    assert ood.fpr_at(inside, outside) is None
    assert ood.auroc(inside, outside) is None


@pytest.mark.parametrize("side", ["id_scores", "ood_scores"])
def test_nan_is_refused_with_its_row(side):
    with pytest.raises(DataError, match=f"row 1: field '{side}': not a finite number: nan"):
        ood.evaluate(**{"id_scores": [1.0], "ood_scores": [1.0], side: [1.0, np.nan]})


@pytest.mark.parametrize("rate", [0, -0.1, 1.01])
def test_impossible_rates_are_refused(rate):
    with pytest.raises(ParameterError, match="tpr"):
        ood.fpr_at([1.0], [0.0], rate)


def test_an_image_has_the_score_of_its_least_or_most_familiar_region():
    image, score = np.array(["b", "a", "b"], dtype=object), np.array([3.0, 2.0, -1.0])
    names, least = ood.per_image(image, score)
    assert list(names) == ["a", "b"]
    assert list(least) == [2, -1]
    assert list(ood.per_image(image, score, "max")[1]) == [2, 3]
    with pytest.raises(ParameterError, match="mean"):
        ood.per_image(image, score, "mean")


def test_the_curve_goes_from_nothing_to_everything():
    fpr, tpr = ood.roc(*scores(6, ties=True))
    assert (fpr[0], tpr[0], fpr[-1], tpr[-1]) == (0, 0, 1, 1)
    assert (np.diff(fpr) >= 0).all()
    assert (np.diff(tpr) >= 0).all()
    with pytest.raises(DataError, match="id_scores"):
        ood.roc([], [1.0])


def test_intervals_hold_the_value_and_are_wider_where_regions_share_images():
    rng = np.random.default_rng(0)
    first, second = rng.normal(1, 1, 400), rng.normal(0, 1, 400)
    value, low, high = ood.with_intervals(first, second)["auroc"]
    assert value == ood.evaluate(first, second)["auroc"]
    assert low < value < high
    assert str(ood.Estimate(value, low, high)) == f"{value:.3f} [{low:.3f}, {high:.3f}]"
    # Each score twenty times, as twenty regions of one image: nothing new is known.
    names = [str(k) for k in np.repeat(np.arange(400), 20)]
    again = ood.with_intervals(np.repeat(first, 20), np.repeat(second, 20), names, names)["auroc"]
    alone = ood.with_intervals(np.repeat(first, 20), np.repeat(second, 20))["auroc"]
    np.testing.assert_allclose(again, (value, low, high), atol=0.01)
    assert alone[2] - alone[1] < (high - low) / 3


def test_with_perfect_separation_metrics_without_an_interval_are_left_out():
    scores = np.arange(40.0)
    assert "auroc" not in ood.with_intervals(scores + 100, scores)
    assert ood.evaluate(scores + 100, scores)["auroc"] == 1
