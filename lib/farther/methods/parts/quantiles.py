"""Percentiles of all values of a stream, exactly, in a few passes and bounded memory.

The first pass draws a sample, which says between which two values the percentile is almost surely; the second counts
what lies below them and keeps what lies between. Where the sample misled, or too much lies between, two more
passes count all values by their bits.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator

import numpy as np

#: Values handled at once.
CHUNK = 1 << 18
#: The sample has every so manieth value; a prime, so that it takes all columns of a table in turn.
STRIDE = 251
#: Values of a sample, and between the bounds, that are held at most.
HELD = 1 << 22
HALF = 1 << 16
#: Which half of a float32 in memory has sign and exponent.
UPPER = 1 if sys.byteorder == "little" else 0


def percentile(passes: Callable[[], Iterator[np.ndarray]], percent: float) -> float:
    """The value below which `percent` per cent of all values lie, as `numpy.percentile` interpolates it.

    Args:
        passes: Gives an iterator over arrays of float32 or float16, of any shapes; called two to four times.
        percent: 0 to 100.

    Raises:
        ValueError: there are no values.

    >>> percentile(lambda: iter([np.float32([3, 1]), np.float32([2])]), 50)
    2.0
    """
    total, sample = _sampled(passes())
    if total == 0:
        raise ValueError("no values")
    position = (total - 1) * percent / 100
    ranks = np.array([math.floor(position), math.ceil(position)])
    found = _between(passes(), *_bounds(sample, percent / 100), ranks)
    low, high = _by_bits(passes, ranks) if found is None else found
    return low + (high - low) * (position - math.floor(position))


def _sampled(arrays: Iterator[np.ndarray]) -> tuple[int, np.ndarray]:
    """How many values there are, and an even sample of them, ndarray of shape (n,), float32."""
    total, stride, parts = 0, STRIDE, [np.zeros(0, np.float32)]
    for array in arrays:
        flat = array.reshape(-1)
        parts.append(flat[-total % stride :: stride].astype(np.float32))
        total += len(flat)
        if sum(len(part) for part in parts) > HELD:
            stride, parts = 2 * stride, [np.concatenate(parts)[::2]]
    return total, np.concatenate(parts)


def _bounds(sample: np.ndarray, share: float) -> tuple[np.float32, np.float32]:
    """Values between which that share of all values ends, as far as a sample can tell; ±∞ where it cannot."""
    margin = 3 * math.sqrt(len(sample)) + 1  # six standard deviations or more
    places = [math.floor(share * len(sample) - margin), math.ceil(share * len(sample) + margin)]
    inside = [place for place in places if 0 <= place < len(sample)]
    ordered = np.partition(sample, inside) if inside else sample
    return (
        ordered[places[0]] if places[0] in inside else np.float32(-np.inf),
        ordered[places[1]] if places[1] in inside else np.float32(np.inf),
    )


def _between(
    arrays: Iterator[np.ndarray], low: np.float32, high: np.float32, ranks: np.ndarray
) -> tuple[float, float] | None:
    """The values at two ranks, from 0, if they are among those from `low` up to `high`; None if not, or not surely."""
    below, held, kept = 0, 0, [np.zeros(0, np.float32)]
    for values in _chunks(arrays):
        under = values < low
        inside = (values <= high) ^ under
        below, held = below + int(np.count_nonzero(under)), held + int(np.count_nonzero(inside))
        if low < high:
            kept.append(values[inside])
            if held > HELD:
                return None
    places = ranks - below
    if places.min() < 0 or places.max() >= held:
        return None
    if low == high:
        return float(low), float(low)
    first, second = np.partition(np.concatenate(kept), places)[places]
    return float(first), float(second)


def _by_bits(passes: Callable[[], Iterator[np.ndarray]], ranks: np.ndarray) -> tuple[float, float]:
    """The values at two ranks, from 0.

    A float32 has 32 bits: one pass counts values by their upper 16, a second one by the lower 16 among those that share
    the wanted upper ones. So nothing is sorted, and what is held does not grow with the stream.
    """
    upper = _upper_counts(passes())
    before = np.cumsum(upper)
    halves = np.searchsorted(before, ranks, side="right")
    lower = _lower_counts(passes(), set(halves.tolist()))
    first, second = (
        _value(half, int(np.searchsorted(np.cumsum(lower[half]), rank - (before[half] - upper[half]), side="right")))
        for half, rank in zip(halves.tolist(), ranks.tolist(), strict=True)
    )
    return first, second


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
