"""Percentiles of all values of a stream, exactly, in two passes and bounded memory."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator

import numpy as np

#: Values handled at once.
CHUNK = 1 << 20
HALF = 1 << 16
#: Which half of a float32 in memory has sign and exponent.
UPPER = 1 if sys.byteorder == "little" else 0


def percentile(passes: Callable[[], Iterator[np.ndarray]], percent: float) -> float:
    """The value below which `percent` per cent of all values lie, as `numpy.percentile` interpolates it.

    A float32 has 32 bits: one pass counts values by their upper 16, a second one by the lower 16 among those that share
    the wanted upper ones. So nothing is sorted, and what is held does not grow with the stream.

    Args:
        passes: Gives an iterator over arrays of float32 or float16, of any shapes; called twice.
        percent: 0 to 100.

    Raises:
        ValueError: there are no values.

    >>> percentile(lambda: iter([np.float32([3, 1]), np.float32([2])]), 50)
    2.0
    """
    upper = _upper_counts(passes())
    total = int(upper.sum())
    if total == 0:
        raise ValueError("no values")
    position = (total - 1) * percent / 100
    ranks = np.array([math.floor(position), math.ceil(position)])
    before = np.cumsum(upper)
    halves = np.searchsorted(before, ranks, side="right")
    lower = _lower_counts(passes(), set(halves.tolist()))
    low, high = (
        _value(half, int(np.searchsorted(np.cumsum(lower[half]), rank - (before[half] - upper[half]), side="right")))
        for half, rank in zip(halves.tolist(), ranks.tolist(), strict=True)
    )
    return low + (high - low) * (position - math.floor(position))


def _upper_counts(arrays: Iterator[np.ndarray]) -> np.ndarray:
    """How many values have each upper half, in the order of the values: ndarray of shape (HALF,), int64.

    The halves of positive values, as unsigned integers, sort as the values do; those of negative ones the other way.
    """
    counts = np.zeros(HALF, np.int64)
    for values in _chunks(arrays):
        counts += np.bincount(_halves(values)[:, UPPER], minlength=HALF)
    return np.concatenate([counts[: HALF // 2 - 1 : -1], counts[: HALF // 2]])


def _lower_counts(arrays: Iterator[np.ndarray], wanted: set[int]) -> dict[int, np.ndarray]:
    """For some upper halves, by their place in `_upper_counts`, how many values have each lower half, in order."""
    counts = {place: np.zeros(HALF, np.int64) for place in wanted}
    for values in _chunks(arrays):
        halves = _halves(values)
        for place in wanted:
            lower = halves[halves[:, UPPER] == _stored_half(place), 1 - UPPER]
            counts[place] += np.bincount(lower, minlength=HALF)
    return {place: found[::-1] if place < HALF // 2 else found for place, found in counts.items()}


def _chunks(arrays: Iterator[np.ndarray]) -> Iterator[np.ndarray]:
    for array in arrays:
        flat = array.reshape(-1)
        for first in range(0, len(flat), CHUNK):
            yield np.ascontiguousarray(flat[first : first + CHUNK], dtype=np.float32)


def _halves(values: np.ndarray) -> np.ndarray:
    """The two halves of each float32, ndarray of shape (n, 2), uint16; column `UPPER` has sign and exponent."""
    return values.view(np.uint16).reshape(-1, 2)


def _stored_half(place: int) -> int:
    """The upper half that stands at a place of `_upper_counts`."""
    return HALF - 1 - place if place < HALF // 2 else place - HALF // 2


def _value(place: int, lower: int) -> float:
    if place < HALF // 2:
        lower = HALF - 1 - lower
    return float(np.uint32((_stored_half(place) << 16) | lower).view(np.float32))
