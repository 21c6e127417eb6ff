"""Aggregates of detections' uncertainties, against those that a plain loop over images gives."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from farther.errors import DataError, ParameterError
from farther.metrics.self_awareness.image_uncertainty import (
    AGGREGATES,
    NO_DETECTION,
    aggregate,
    best_threshold,
    keeping,
    of_confidence,
)

RULES = {
    "sum": sum,
    "mean": np.mean,
    "min": min,
    "top-1": min,
    **{f"top-{m}": lambda values, m=m: np.mean(sorted(values)[:m]) for m in (2, 3, 5, 100)},
}


@settings(max_examples=100, deadline=None)
@given(
    detections=st.lists(st.tuples(st.sampled_from("abc"), st.floats(-5, 5, width=32)), max_size=12),
    how=st.sampled_from(sorted(RULES)),
)
def test_aggregates_are_those_of_a_loop_over_images(detections, how):
    image_id = np.array([image for image, _ in detections], dtype=object)
    doubt = np.array([value for _, value in detections])
    images = ["c", "a", "z", "b"]  # z has no detection
    of_image = {name: [value for image, value in detections if image == name] for name in images}
    expected = [RULES[how](of_image[name]) if of_image[name] else NO_DETECTION for name in images]
    np.testing.assert_allclose(
        aggregate(doubt, image_id, images, how), expected, rtol=1e-12, atol=1e-12
    )


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
    with pytest.raises(DataError, match="not a number in row 1"):
        aggregate(np.array([0.5, np.nan]), np.array(["a", "a"]), ["a"])


def test_of_confidence_the_three_most_certain_count(regions):
    rows = zip("aaaabbc", (0.9, 0.4, 0.7, 0.8, 0.3, 0.6, 0.5), strict=True)
    found = regions(*[(name, (0, 0, 9, 9), score) for name, score in rows])
    doubt = of_confidence(found, ["a", "b", "c", "d"])
    np.testing.assert_allclose(doubt, [0.2, 0.55, 0.5, NO_DETECTION], rtol=1e-6)


@settings(max_examples=100, deadline=None)
@given(
    known=st.lists(st.integers(0, 6), min_size=1), unknown=st.lists(st.integers(0, 6), min_size=1)
)
def test_no_threshold_has_a_larger_balanced_accuracy(known, unknown):
    known, unknown = np.array(known, float), np.array(unknown, float)

    def balanced(threshold):
        tpr, tnr = np.mean(known <= threshold), np.mean(unknown > threshold)
        return 2 * tpr * tnr / (tpr + tnr) if tpr * tnr else 0.0

    found = best_threshold(known, unknown)
    every = [balanced(threshold) for threshold in np.arange(-1, 8)]
    if found is None:
        assert max(every) == 0
        return
    assert balanced(found) == pytest.approx(max(every))
    # Of equal ones it is the first, which accepts the fewest images.
    assert not any(balanced(threshold) >= max(every) - 1e-12 for threshold in np.arange(-1, found))


def test_the_threshold_that_keeps_a_share_is_the_smallest_that_accepts_it():
    known = np.arange(20.0)
    assert keeping(known, 0.95) == 18
    assert np.mean(known <= 18) == 0.95
    assert keeping(np.zeros(0)) is None


def test_one_side_without_images_has_no_best_threshold():
    assert best_threshold(np.zeros(0), np.ones(3)) is None
    assert best_threshold(np.ones(3), np.zeros(0)) is None
