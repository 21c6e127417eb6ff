"""Percentiles and largest values of activations, for the methods that prune, clip or scale them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated

import numpy as np
from pydantic import Field

from farther.methods.arrays import Array, are_largest, largest_values, namespace

__all__ = ["Percentile", "kept_count", "largest", "largest_values", "percentile", "sharpening"]

#: A percentage strictly between 0 and 100.
Percentile = Annotated[float, Field(gt=0, lt=100)]
#: The bit of a float32's sign.
SIGN = np.uint32(1 << 31)
#: Values handled at once.
CHUNK = 1 << 18
#: One of so many values of a stream is sampled: a prime, so that all features are.
SAMPLE_STEP = 509
#: Standard deviations that the sample may err.
MARGIN = 5
#: So many values are sorted, not sampled.
MAX_SORTED = 1 << 17
#: Values that may lie between those of the sample: 64 MiB.
MAX_BETWEEN = 1 << 24
#: exp of more than this may overflow when multiplied by features and weights.
LARGEST_EXPONENT = 80.0


def percentile(passes: Callable[[], Iterable[np.ndarray]], percent: float) -> float:
    """The percentile of all values of a stream, exactly as `numpy.percentile` interpolates it.

    The first pass draws a sample, two values of which most likely enclose the percentile. The
    second one counts the values outside of them and sorts those inside. Where the sample misleads,
    two more passes count all values by their bits.

    Args:
        passes: Starts a pass over arrays of float32 or float16 of any shape.
        percent: 0 to 100.

    Raises:
        ValueError: there are no values.

    >>> percentile(lambda: iter([np.float32([3, 1]), np.float32([2])]), 50)
    2.0
    """
    sample, total = _sample(passes())
    if total == 0:
        raise ValueError("no values")
    position = (total - 1) * percent / 100
    ranks = np.array([math.floor(position), math.ceil(position)])
    low = -math.inf
    high = math.inf
    if total > MAX_SORTED:
        low, high = _enclosing(sample, percent / 100)
    at_ranks = _between(passes(), low, high, ranks)
    if at_ranks is None:
        at_ranks = _by_bits(passes, ranks)
    lower, upper = at_ranks
    return lower + (upper - lower) * (position - math.floor(position))


def _sample(arrays: Iterable[np.ndarray]) -> tuple[np.ndarray, int]:
    """Every `SAMPLE_STEP`-th value, ascending, and the number of all values."""
    parts = [np.empty(0, np.float32)]
    total = 0
    for chunk in _chunks(arrays):
        parts.append(chunk[-total % SAMPLE_STEP :: SAMPLE_STEP])
        total += len(chunk)
    sample = np.concatenate(parts)
    sample.sort()
    return sample, total


def _enclosing(sample: np.ndarray, share: float) -> tuple[float, float]:
    """Two values of an ascending sample between which the quantile of all values most likely is.

    A quantile p of n values drawn at random has a rank with the standard deviation √(n p (1 − p)).
    """
    rank = (len(sample) - 1) * share
    margin = 1 + MARGIN * math.sqrt(len(sample) * share * (1 - share))
    first = math.floor(rank - margin)
    last = math.ceil(rank + margin)
    low = -math.inf
    high = math.inf
    if first >= 0:
        low = float(sample[first])
    if last < len(sample):
        high = float(sample[last])
    return low, high


def _between(
    arrays: Iterable[np.ndarray], low: float, high: float, ranks: np.ndarray
) -> list[float] | None:
    """The values at ranks of the stream, 0 for the smallest, if they are from `low` to `high`.

    None if one is not, if more than `MAX_BETWEEN` values lie between, or if one is NaN.
    """
    # Of the type of the values, or NumPy compares with float64.
    lower, upper = np.float32(low), np.float32(high)
    below = 0
    at_low = 0
    at_high = 0
    between = 0
    parts = []
    for chunk in _chunks(arrays):
        if np.isnan(chunk.min()):
            return None
        is_above_low = chunk > lower
        is_below_high = chunk < upper
        below_low = int(np.count_nonzero(chunk < lower))
        below += below_low
        at_low += len(chunk) - int(np.count_nonzero(is_above_low)) - below_low
        at_high += int(np.count_nonzero(chunk == upper))
        parts.append(chunk[is_above_low & is_below_high])
        between += len(parts[-1])
        if between > MAX_BETWEEN:
            return None

    if low == high:
        at_high = 0
    places = ranks - below - at_low
    if ranks[0] < below or places[1] >= between + at_high:
        return None
    ordered = np.sort(np.concatenate(parts))
    values = []
    for place in places.tolist():
        if place < 0:
            values.append(low)
        elif place < between:
            values.append(float(ordered[place]))
        else:
            values.append(high)
    return values


def _by_bits(passes: Callable[[], Iterable[np.ndarray]], ranks: np.ndarray) -> list[float]:
    """The values at two ranks of a stream, 0 for the smallest.

    The first pass counts the values by the upper half of their bits, the second one those in
    question by the lower.
    """
    upper = np.zeros(1 << 16, np.int64)
    for keys in _ordered_bits(passes()):
        upper += np.bincount(keys >> 16, minlength=1 << 16)
    prefixes = np.searchsorted(np.cumsum(upper), ranks, side="right")
    lower = np.zeros((2, 1 << 16), np.int64)
    for keys in _ordered_bits(passes()):
        for count, prefix in zip(lower, prefixes, strict=True):
            count += np.bincount(keys[keys >> 16 == prefix] & 0xFFFF, minlength=1 << 16)
    within = ranks - (np.cumsum(upper) - upper)[prefixes]
    suffixes = [
        np.searchsorted(np.cumsum(count), rank, side="right")
        for count, rank in zip(lower, within, strict=True)
    ]
    keys = (prefixes << 16 | np.array(suffixes)).astype(np.uint32)
    values: list[float] = np.where(keys >> 31, keys ^ SIGN, ~keys).view(np.float32).tolist()
    return values


def _ordered_bits(arrays: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
    """The bits of float32 values as integers of the same order, in chunks."""
    for chunk in _chunks(arrays):
        bits = chunk.view(np.uint32)
        yield np.where(bits >> 31, ~bits, bits ^ SIGN)


def _chunks(arrays: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
    """All values, `CHUNK` at a time: ndarrays of shape (n,), float32."""
    for array in arrays:
        flat = array.reshape(-1)
        for first in range(0, len(flat), CHUNK):
            yield flat[first : first + CHUNK].astype(np.float32, copy=False)


def kept_count(values: int, percent: float) -> int:
    """Number of values among the largest (100 − percent) per cent."""
    return values - round(values * percent / 100)


def largest(vectors: Array, percent: float) -> Array:
    """Mask of the largest (100 − percent) per cent of each row, shape (n, D).

    Of equal values the first count.
    """
    return are_largest(vectors, kept_count(int(vectors.shape[1]), percent))


def sharpening(before: Array, after: Array) -> Array:
    """exp(s1 / s2) of each row, shape (n, 1), from its sums before and after pruning.

    s1 / s2 counts as 0 where s2 is 0, and is at most 80, so that the result stays finite.
    """
    xp = namespace(before)
    before = before[:, None]
    after = after[:, None]
    is_zero = after == 0
    ratio = xp.where(is_zero, 0.0, before / (after + is_zero))
    return xp.exp(xp.clip(ratio, None, LARGEST_EXPONENT))
