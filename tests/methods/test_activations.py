"""Percentiles of streams against NumPy's."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from tests.support.drawn import drawn

from farther.methods import activations
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


def by_bits(values: np.ndarray, percent: float) -> float:
    """The percentile at a rank that is a whole number, without a sample."""
    rank = round((values.size - 1) * percent / 100)
    return activations._by_bits(lambda: iter([values]), np.array([rank, rank]))[0]


def refuse(*_arguments):
    raise AssertionError("all values were counted by their bits")


@pytest.mark.parametrize("percent", [0, 5, 50, 90, 100])
def test_a_sample_saves_the_count_of_all_values(percent, monkeypatch):
    values = skewed(700_001)
    expected = by_bits(values, percent)
    monkeypatch.setattr(activations, "_by_bits", refuse)
    assert percentile(lambda: iter(np.array_split(values, 7)), percent) == expected


def test_values_that_many_share_are_counted_not_kept(monkeypatch):
    values = np.repeat(np.float32([0, 1, 2]), 200_000)
    monkeypatch.setattr(activations, "_by_bits", refuse)
    monkeypatch.setattr(activations, "MAX_BETWEEN", 10)
    assert [percentile(lambda: iter([values]), q) for q in (10, 50, 90)] == [0, 1, 2]


def test_a_sample_that_misleads_does_no_harm():
    values = skewed(600_000)
    values[:: activations.SAMPLE_STEP] = 100.0  # all that is sampled
    assert percentile(lambda: iter([values]), 50) == pytest.approx(
        np.percentile(values.astype(np.float64), 50), rel=1e-9
    )


def test_too_many_values_between_are_not_kept(monkeypatch):
    monkeypatch.setattr(activations, "MAX_BETWEEN", 10)
    values = skewed(300_001)
    assert percentile(lambda: iter([values]), 90) == by_bits(values, 90)


def test_infinities_are_values_like_others():
    values = np.concatenate([np.full(90_000, -np.inf), skewed(100_001), np.full(80_000, np.inf)])
    values = values.astype(np.float32)
    assert percentile(lambda: iter([values]), 50) == by_bits(values, 50)


def test_no_values_have_no_percentile():
    with pytest.raises(ValueError, match="no values"):
        percentile(lambda: iter([]), 50)
