"""Calibration errors against sums, and the logistic calibrators against a minimiser."""

import numpy as np
import pytest
from scipy.optimize import minimize
from tests.support.cases import slow_but

from farther.metrics.self_awareness import calibration, calibration_errors
from farther.metrics.self_awareness.images import ANY_OVERLAP
from farther.metrics.self_awareness.matches import match

FIRST, SECOND, FAR = (0, 0, 10, 10), (20, 0, 30, 10), (50, 50, 60, 60)


def calibrated_by(calibrators, regions):
    return regions.with_columns(score=calibration.confidences(calibrators, regions))


@pytest.fixture
def detected(objects, regions):
    """Two cats and a dog that is detected elsewhere.

    One cat is detected twice (IoU 1 and 0.5), the other with a small overlap.
    """
    truth = objects(("a", FIRST, "cat"), ("b", SECOND, "cat"), ("b", FIRST, "dog"))
    found = regions(
        ("a", FIRST, 0.9, "cat"),
        ("a", (0, 0, 10, 5), 0.6, "cat"),
        ("b", (20, 0, 30, 2), 0.3, "cat"),
        ("b", FAR, 0.62, "dog"),
        classes=["cat", "dog"],
    )
    return truth, found


def test_laace_0_is_the_mean_distance_of_confidence_and_iou_by_class(detected):
    # The second detection of the first cat matches nothing; the third overlaps its cat by 0.2.
    expected = np.mean([np.mean([abs(0.9 - 1), abs(0.6 - 0), abs(0.3 - 0.2)]), abs(0.62 - 0)])
    assert calibration_errors.laace_0(match(*detected, iou=ANY_OVERLAP)) == pytest.approx(
        expected, abs=1e-6
    )


def test_laece_0_takes_the_mean_of_each_bin_first(detected):
    # With two bins, 0.9 and 0.6 fall into one: confidence 0.75, IoU 0.5.
    cats = 2 / 3 * abs(0.75 - 0.5) + 1 / 3 * abs(0.3 - 0.2)
    matched = match(*detected, iou=ANY_OVERLAP)
    assert calibration_errors.laece_0(matched, bins=2) == pytest.approx(
        np.mean([cats, 0.62]), abs=1e-6
    )
    # With narrow bins each detection has its own.
    assert calibration_errors.laece_0(matched, bins=1000) == pytest.approx(
        calibration_errors.laace_0(matched)
    )


def test_d_ece_compares_confidence_with_precision_over_all_classes(detected):
    # At IoU 0.5 only the first detection is true. With two bins: 0.3 alone; 0.9, 0.6 and 0.62
    # together.
    expected = 1 / 4 * 0.3 + 3 / 4 * abs((0.9 + 0.6 + 0.62) / 3 - 1 / 3)
    assert calibration_errors.d_ece(match(*detected, iou=0.5), bins=2) == pytest.approx(
        expected, abs=1e-6
    )


def gap(score, target, bins):
    """Bin by bin: the distance of the two means, by the bin's share of the detections."""
    total = 0.0
    for k in range(bins):
        is_last = k == bins - 1
        inside = (score >= k / bins) & ((score < (k + 1) / bins) | is_last)
        if inside.any():
            distance = abs(score[inside].mean() - target[inside].mean())
            total += np.mean(inside) * distance
    return total


@pytest.mark.parametrize("seed", slow_but((0,), range(3)))
def test_binned_errors_are_those_of_a_loop_over_the_bins(world, seed):
    objects, regions = world(seed)
    score = np.random.default_rng(seed).random(len(regions))
    score[::9] = 1
    regions = regions.with_columns(score=score)
    errors = calibration_errors.evaluate(objects, regions)
    anywhere = match(objects, regions, iou=ANY_OVERLAP)
    gaps = [gap(of_class.score, of_class.quality, 25) for of_class in anywhere.values()]
    assert errors["laece_0"] == pytest.approx(np.mean(gaps))
    at_half = match(objects, regions, iou=0.5)
    score = np.concatenate([of_class.score for of_class in at_half.values()])
    is_true = np.concatenate([of_class.is_true for of_class in at_half.values()])
    assert errors["d_ece"] == pytest.approx(gap(score, is_true, 20))


def test_a_confidence_of_1_falls_into_the_last_bin(objects, regions):
    truth, found = objects(("a", FIRST, "cat")), regions(("a", FIRST, 1.0, "cat"))
    assert calibration_errors.evaluate(truth, found) == {"laece_0": 0, "laace_0": 0, "d_ece": 0}
    truth = objects(("a", FIRST, "cat"), ("b", FIRST, "cat"))
    found = regions(("a", FIRST, 0.97, "cat"), ("a", FAR, 1.0, "cat"), ("b", FIRST, 0.93, "cat"))
    # Of the last bin 0.97 + 1 against one cat, of the one before 0.93 against one.
    expected = pytest.approx((abs(0.97 + 1 - 1) + abs(0.93 - 1)) / 3, abs=1e-6)
    assert calibration_errors.laece_0(match(truth, found, iou=ANY_OVERLAP)) == expected
    assert calibration_errors.d_ece(match(truth, found, iou=0.5)) == expected


def test_without_detections_there_is_no_error(objects, regions):
    found = regions(("a", FIRST, 0.5, "cat"))[:0]
    assert set(calibration_errors.evaluate(objects(("a", FIRST, "cat")), found).values()) == {None}


@pytest.fixture
def many(objects, regions):
    """200 cats, detected with an IoU that rises with the confidence, but is lower than it."""
    random = np.random.default_rng(3)
    confidence = random.uniform(0.05, 0.99, 200)
    widths = np.round(10 * confidence**2 * random.uniform(0.6, 1, 200), 1)
    cats = []
    detections = []
    for number in range(200):
        cats.append((f"{number}", FIRST, "cat"))
        detections.append((f"{number}", (0, 0, widths[number], 10), confidence[number], "cat"))
    return objects(*cats), regions(*detections)


@pytest.mark.parametrize("kind", ["temperature", "platt"])
def test_logistic_calibrators_minimise_the_cross_entropy_to_the_iou(many, kind):
    truth, found = many
    p = found.score.astype(np.float64)
    matched = match(truth, found)["cat"]
    by_score = dict(zip(matched.score.tolist(), matched.quality.tolist(), strict=True))
    target = np.clip([by_score[s] for s in p.tolist()], 1 / 202, 1 - 1 / 202)

    def loss(parameters):
        slope, intercept = parameters[0], parameters[1] if kind == "platt" else 0
        q = 1 / (1 + np.exp(-(slope * np.log(p / (1 - p)) + intercept)))
        return -np.sum(target * np.log(q) + (1 - target) * np.log(1 - q))

    best = minimize(
        loss,
        [1.0, 0.0],
        method="Nelder-Mead",
        options={"xatol": 1e-10, "fatol": 1e-12, "maxiter": 4000},
    ).x
    calibrator = calibration.fit(kind, truth, found)["cat"]
    assert calibrator.slope == pytest.approx(best[0], rel=1e-5)
    assert calibrator.intercept == pytest.approx(best[1] if kind == "platt" else 0, abs=1e-5)


@pytest.mark.parametrize("kind", ["temperature", "platt"])
def test_logistic_calibrators_lower_the_error_and_keep_the_order(many, kind):
    truth, found = many
    after = calibrated_by(calibration.fit(kind, truth, found), found)
    error, before = (calibration_errors.evaluate(truth, one)["laece_0"] for one in (after, found))
    assert error < before
    assert (np.argsort(after.score, kind="stable") == np.argsort(found.score, kind="stable")).all()


@pytest.mark.parametrize("kind", ["temperature", "platt"])
def test_detections_that_are_all_false_or_of_confidence_1_can_be_calibrated(objects, regions, kind):
    truth = objects(("a", FIRST, "cat"))
    found = regions(("a", FAR, 1.0, "cat"), ("a", FAR, 0.0, "cat"))
    after = calibration.fit(kind, truth, found)["cat"](np.array([0.0, 0.5, 1.0]))
    assert np.isfinite(after).all() and (after >= 0).all() and (after <= 1).all()
