"""Percentiles of streams against NumPy's."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from tests.support.drawn import drawn

from farther.methods.activations import percentile

FLOATS = st.floats(-1e6, 1e6, width=32)


@drawn
@given(arrays.arrays(np.float32, st.integers(1, 200), elements=FLOATS), st.floats(0, 100))
def test_it_is_the_percentile_of_numpy(values, percent):
    found = percentile(lambda: iter(np.array_split(values, 3)), percent)
    assert found == pytest.approx(
        np.percentile(values.astype(np.float64), percent), rel=1e-9, abs=1e-9
    )


def test_most_values_may_be_equal():
    values = np.repeat(np.float32([0, 1]), [900, 100])
    assert percentile(lambda: iter([values]), 89.9) == 0.0
    assert percentile(lambda: iter([values]), 91) == 1.0


def test_half_precision_is_widened():
    assert percentile(lambda: iter([np.float16([1, 2, 4])]), 50) == 2.0


def test_negative_values_sort_below_positive_ones():
    assert percentile(lambda: iter([np.float32([-2, -1, 0, 1, 2])]), 25) == -1.0


def test_large_arrays_are_cut_into_chunks(monkeypatch):
    monkeypatch.setattr("farther.methods.activations.CHUNK", 7)
    values = np.random.default_rng(0).normal(size=(20, 5)).astype(np.float32)
    assert percentile(lambda: iter([values]), 37) == pytest.approx(
        np.percentile(values, 37), rel=1e-6
    )


def skewed(count: int) -> np.ndarray:
    return np.random.default_rng(1).exponential(size=count).astype(np.float32)


@pytest.mark.parametrize("percent", [0, 0.01, 37.3, 90, 99.99, 100])
def test_long_streams_are_exact_too(percent):
    values = skewed(300_000)
    found = percentile(lambda: iter(np.array_split(values, 7)), percent)
    assert found == pytest.approx(np.percentile(values.astype(np.float64), percent), rel=1e-9)


def test_half_of_a_long_stream_may_be_one_value():
    values = np.maximum(skewed(200_000) - 0.7, 0)
    assert percentile(lambda: iter([values]), 30) == 0.0


def test_no_values_have_no_percentile():
    with pytest.raises(ValueError, match="no values"):
        percentile(lambda: iter([]), 50)
