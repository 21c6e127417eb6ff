"""Aggregates of detections' uncertainties, against those that a plain loop over images gives."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.drawn import drawn

from farther.errors import DataError, ParameterError
from farther.metrics.self_awareness.image_uncertainty import (
    AGGREGATES,
    NO_DETECTION,
    aggregate,
    best_threshold,
    of_confidence,
    threshold_accepting,
)

#: Aggregate → the function of an image's uncertainties, or the number of the most certain
#: detections whose mean is taken.
FUNCTIONS = {"sum": sum, "mean": np.mean, "min": min}
COUNTS = {"top-1": 1, "top-2": 2, "top-3": 3, "top-5": 5, "top-100": 100}


def of_one_image(uncertainties, how):
    if not uncertainties:
        return NO_DETECTION
    if how in FUNCTIONS:
        return FUNCTIONS[how](uncertainties)
    return np.mean(sorted(uncertainties)[: COUNTS[how]])


@settings(drawn, max_examples=100)
@given(
    detections=st.lists(st.tuples(st.sampled_from("abc"), st.floats(-5, 5, width=32)), max_size=12),
    how=st.sampled_from([*FUNCTIONS, *COUNTS]),
)
def test_aggregates_are_those_of_a_loop_over_images(detections, how):
    image_id = np.array([image for image, _ in detections], dtype=object)
    uncertainty = np.array([value for _, value in detections])
    images = ["c", "a", "z", "b"]  # z has no detection
    expected = []
    for name in images:
        of_image = [value for image, value in detections if image == name]
        expected.append(of_one_image(of_image, how))
    aggregated = aggregate(uncertainty, image_id, images, how)
    np.testing.assert_allclose(aggregated, expected, rtol=1e-12, atol=1e-12)


def test_the_paper_s_aggregates_are_known():
    for how in AGGREGATES:
        assert aggregate(np.array([0.5]), np.array(["a"]), ["a"], how).tolist() == [0.5]


@pytest.mark.parametrize("how", ["top-0", "top", "max", "top-2.5", ""])
def test_unknown_aggregates_are_refused(how):
    with pytest.raises(ParameterError, match="unknown aggregate"):
        aggregate(np.array([0.5]), np.array(["a"]), ["a"], how)


def test_detections_of_other_images_and_missing_numbers_are_refused():
    with pytest.raises(DataError, match="'b', which is not one of the images"):
        aggregate(np.array([0.5]), np.array(["b"]), ["a"])
    with pytest.raises(DataError, match=r"row 1: .*not a finite number"):
        aggregate(np.array([0.5, np.nan]), np.array(["a", "a"]), ["a"])


def test_of_confidence_the_three_most_certain_count(regions):
    box = (0, 0, 9, 9)
    table = regions(
        ("a", box, 0.9),
        ("a", box, 0.4),
        ("a", box, 0.7),
        ("a", box, 0.8),
        ("b", box, 0.3),
        ("b", box, 0.6),
        ("c", box, 0.5),
    )
    uncertainty = of_confidence(table, ["a", "b", "c", "d"])
    np.testing.assert_allclose(uncertainty, [0.2, 0.55, 0.5, NO_DETECTION], rtol=1e-6)


@settings(drawn, max_examples=100)
@given(
    known=st.lists(st.integers(0, 6), min_size=1), unknown=st.lists(st.integers(0, 6), min_size=1)
)
def test_no_threshold_has_a_larger_balanced_accuracy(known, unknown):
    known = np.array(known, float)
    unknown = np.array(unknown, float)

    def balanced_accuracy(threshold):
        tpr = np.mean(known <= threshold)
        tnr = np.mean(unknown > threshold)
        return 2 * tpr * tnr / (tpr + tnr) if tpr * tnr else 0.0

    chosen = best_threshold(known, unknown)
    largest = max(balanced_accuracy(threshold) for threshold in np.arange(-1, 8))
    if chosen is None:
        assert largest == 0
        return
    assert balanced_accuracy(chosen) == pytest.approx(largest)
    # Of equal ones it is the first, which accepts the fewest images.
    for threshold in np.arange(-1, chosen):
        assert balanced_accuracy(threshold) < largest - 1e-12


def test_the_threshold_that_keeps_a_share_is_the_smallest_that_accepts_it():
    known = np.arange(20.0)
    assert threshold_accepting(known, 0.95) == 18
    assert np.mean(known <= 18) == 0.95
    assert threshold_accepting(np.zeros(0)) is None


def test_one_side_without_images_has_no_best_threshold():
    assert best_threshold(np.zeros(0), np.ones(3)) is None
    assert best_threshold(np.ones(3), np.zeros(0)) is None
