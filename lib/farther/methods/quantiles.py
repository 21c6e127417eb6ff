"""Percentiles of all values of a stream, exactly, in two passes and bounded memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

#: Values handled at once.
CHUNK = 1 << 20
HALF = 1 << 16


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
    upper = np.zeros(HALF, np.int64)
    for keys in _keys(passes()):
        upper += np.bincount(keys >> 16, minlength=HALF)
    total = int(upper.sum())
    if total == 0:
        raise ValueError("no values")
    position = (total - 1) * percent / 100
    ranks = np.array([math.floor(position), math.ceil(position)])
    before = np.cumsum(upper)
    halves = np.searchsorted(before, ranks, side="right")
    lower = {int(half): np.zeros(HALF, np.int64) for half in halves}
    for keys in _keys(passes()):
        for half, counts in lower.items():
            counts += np.bincount(keys[(keys >> 16) == half] & (HALF - 1), minlength=HALF)
    low, high = (
        _value(half, int(np.searchsorted(np.cumsum(lower[half]), rank - (before[half] - upper[half]), side="right")))
        for half, rank in zip(halves.tolist(), ranks.tolist(), strict=True)
    )
    return low + (high - low) * (position - math.floor(position))


def _keys(arrays: Iterator[np.ndarray]) -> Iterator[np.ndarray]:
    """Unsigned integers that sort as the values do: the bits, with the sign's flipped, or all of a negative one's."""
    for array in arrays:
        flat = array.reshape(-1)
        for first in range(0, len(flat), CHUNK):
            bits = flat[first : first + CHUNK].astype(np.float32).view(np.uint32)
            yield bits ^ np.where(bits >> 31, np.uint32(0xFFFFFFFF), np.uint32(0x80000000))


def _value(upper: int, lower: int) -> float:
    key = np.uint32((upper << 16) | lower)
    bits = key ^ (np.uint32(0x80000000) if key >> 31 else np.uint32(0xFFFFFFFF))
    return float(bits.view(np.float32))
