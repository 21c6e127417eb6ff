"""Aggregates of detections' uncertainties, against those that a plain loop over images gives."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from farther.errors import DataError, ParameterError
from farther.metrics.image_uncertainty import AGGREGATES, NO_DETECTION, aggregate
from farther.metrics.self_awareness import image_scores

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
    np.testing.assert_allclose(aggregate(doubt, image_id, images, how), expected, rtol=1e-12, atol=1e-12)


def test_the_paper_s_aggregates_are_known():
    for how in AGGREGATES:
        assert aggregate(np.array([0.5]), np.array(["a"]), ["a"], how).tolist() == [0.5]


def test_of_confidence_the_mean_of_the_three_most_certain_is_the_score_of_images(regions):
    found = regions(
        *[(name, (0, 0, 9, 9), s) for name, s in zip("aaaabbc", (0.9, 0.4, 0.7, 0.8, 0.3, 0.6, 0.5), strict=True)]
    )
    images = ["a", "b", "c", "d"]
    doubt = aggregate(1.0 - found.score.astype(np.float64), found.image_id, images, "top-3")
    np.testing.assert_allclose(-doubt, image_scores(images, found, top=3), rtol=1e-12)


@pytest.mark.parametrize("how", ["top-0", "top", "max", "top-2.5", ""])
def test_unknown_aggregates_are_refused(how):
    with pytest.raises(ParameterError, match="unknown aggregate"):
        aggregate(np.array([0.5]), np.array(["a"]), ["a"], how)


def test_detections_of_other_images_and_missing_numbers_are_refused():
    with pytest.raises(DataError, match="'b', which is not one of the images"):
        aggregate(np.array([0.5]), np.array(["b"]), ["a"])
    with pytest.raises(DataError, match="not a number in row 1"):
        aggregate(np.array([0.5, np.nan]), np.array(["a", "a"]), ["a"])
