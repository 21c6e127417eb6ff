"""Calibrators of confidences, against scikit-learn and by hand."""

import numpy as np
import pytest
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LinearRegression

from farther.errors import ParameterError
from farther.metrics import self_awareness
from farther.metrics.self_awareness import calibration
from farther.metrics.self_awareness.matches import match

FIRST, SECOND, NOWHERE = [0, 0, 100, 100], [200, 0, 300, 100], [700, 700, 800, 800]


def calibrated_by(calibrators, regions):
    return regions.with_columns(score=calibration.confidences(calibrators, regions))


@pytest.mark.parametrize("kind", ["linear", "isotonic"])
def test_calibrators_equal_scikit_learns(world, kind):
    objects, regions = world(2)
    matched = match(objects, regions)["cat"]
    peer = (
        LinearRegression()
        if kind == "linear"
        else IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip")
    )
    shape = (-1, 1) if kind == "linear" else (-1,)
    peer.fit(matched.score.reshape(shape), matched.quality)
    asked = np.linspace(0, 1, 37)
    expected = np.clip(peer.predict(asked.reshape(shape)), 0, 1)
    assert calibration.fit(kind, objects, regions)["cat"](asked) == pytest.approx(
        expected, abs=1e-6
    )


@pytest.mark.parametrize("kind", ["linear", "histogram", "isotonic"])
def test_calibration_lowers_the_error_where_it_was_learnt_and_keeps_confidences_between_0_and_1(
    world, kind
):
    objects, regions = world(3, images=150)
    calibrated = calibrated_by(calibration.fit(kind, objects, regions), regions)
    before, after = (self_awareness.evaluate(objects, r)["laece"] for r in (regions, calibrated))
    assert after < before / 2
    assert calibrated.score.min() >= 0
    assert calibrated.score.max() <= 1


def test_histogram_bins_hold_equally_many_detections_and_few_detections_make_few_bins(
    objects, regions
):
    truth = objects(("a", FIRST, "cat"))
    rows = [("a", NOWHERE, 0.1), ("a", NOWHERE, 0.2), ("a", NOWHERE, 0.3), ("a", FIRST, 0.4)]
    steps = calibration.fit("histogram", truth, regions(*rows))["cat"]
    # Four detections make two bins: of 0.1 and 0.2, and of 0.3 and 0.4.
    assert steps(np.array([0.0, 0.15, 0.25, 0.35, 1.0])) == pytest.approx([0, 0, 0, 0.5, 0.5])
    single = calibration.fit("histogram", truth, regions(("a", FIRST, 0.4)))["cat"]
    assert single(np.array([0.0, 1.0])).tolist() == [1, 1]
    # Of equal confidences one bin has all.
    equal = calibration.fit(
        "histogram", truth, regions(*(("a", box, 0.4) for box in (FIRST, *[NOWHERE] * 3)))
    )["cat"]
    assert equal(np.array([0.0, 1.0])).tolist() == [0.25, 0.25]


def test_targets_of_platts_curve_are_kept_off_0_and_1(objects, regions):
    truth = objects(("a", FIRST, "cat"), ("a", SECOND, "cat"))
    platt = calibration.fit(
        "platt", truth, regions(("a", FIRST, 0.8), ("a", SECOND, 0.8), ("a", NOWHERE, 0.2))
    )["cat"]
    # Three detections: targets of 4/5 and 1/5, which two levels reach exactly.
    assert platt(np.array([0.8, 0.2])) == pytest.approx([4 / 5, 1 / 5], abs=1e-4)


def test_classes_without_detections_are_left_as_they_are(objects, regions):
    truth, found = objects(("a", FIRST, "cat")), regions(("a", FIRST, 0.25, "cat"))
    calibrators = calibration.fit("linear", truth, found)
    assert set(calibrators) == {"cat"}
    other = regions(("a", FIRST, 0.25, "cat"), ("a", FIRST, 0.25, "dog"))
    assert calibrated_by(calibrators, other).score.tolist() == [1, 0.25]
    with pytest.raises(ParameterError, match="linear, histogram, isotonic"):
        calibration.fit("beta", truth, found)


def test_the_line_through_equal_confidences_is_level(objects, regions):
    truth = objects(("a", FIRST, "cat"))
    found = regions(("a", FIRST, 0.5), ("a", NOWHERE, 0.5))
    line = calibration.fit("linear", truth, found)["cat"]
    assert line(np.array([0.1, 0.5, 0.9])) == pytest.approx([0.5, 0.5, 0.5])
