"""Percentiles and largest values of activations, for the methods that prune, clip or scale them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated

import numpy as np
from pydantic import Field

#: A percentage strictly between 0 and 100.
Percentile = Annotated[float, Field(gt=0, lt=100)]
#: Values handled at once.
CHUNK = 1 << 18
#: The sample takes every n-th value; a prime, so that it visits all columns of a table in turn.
STRIDE = 251
#: exp of more than this may overflow when multiplied by features and weights.
LARGEST_EXPONENT = 80.0


def percentile(passes: Callable[[], Iterable[np.ndarray]], percent: float) -> float:
    """The percentile of all values of a stream, exactly as `numpy.percentile` interpolates it.

    A sample bounds the percentile; one more pass counts the values below the bounds and keeps those between. Where the
    sample misled, the pass is repeated without bounds.

    Args:
        passes: Starts a pass over arrays of float32 or float16 of any shape; called two or three times.
        percent: 0 to 100.

    Raises:
        ValueError: there are no values.

    >>> percentile(lambda: iter([np.float32([3, 1]), np.float32([2])]), 50)
    2.0
    """
    total, sample = 0, [np.zeros(0, np.float32)]
    for values in _chunks(passes()):
        sample.append(values[-total % STRIDE :: STRIDE].copy())
        total += len(values)
    if total == 0:
        raise ValueError("no values")
    position = (total - 1) * percent / 100
    ranks = np.array([math.floor(position), math.ceil(position)])
    bounds = _bounds(np.concatenate(sample), percent / 100)
    low, high = _at_ranks(passes(), ranks, *bounds) or _at_ranks(passes(), ranks, -math.inf, math.inf) or (0.0, 0.0)
    return low + (high - low) * (position - math.floor(position))


def _bounds(sample: np.ndarray, share: float) -> tuple[float, float]:
    """Values of a sample six standard deviations below and above its quantile; ±∞ beyond its ends."""
    ordered = np.concatenate([[-math.inf], np.sort(sample), [math.inf]])
    margin = 3 * math.sqrt(len(sample)) + 1
    low, high = math.floor(share * len(sample) - margin) + 1, math.ceil(share * len(sample) + margin) + 1
    return float(ordered[max(low, 0)]), float(ordered[min(high, len(sample) + 1)])


def _at_ranks(arrays: Iterable[np.ndarray], ranks: np.ndarray, low: float, high: float) -> tuple[float, float] | None:
    """The values at two ranks, counted from 0, if both are from `low` to `high`; None otherwise."""
    below, at_low, at_high, between = 0, 0, 0, [np.zeros(0, np.float32)]
    for values in _chunks(arrays):
        below += int(np.count_nonzero(values < low))
        at_low, at_high = at_low + int(np.count_nonzero(values == low)), at_high + int(np.count_nonzero(values == high))
        between.append(values[(values > low) & (values < high)])  # not the bounds: they may be half of all values
    inner = np.sort(np.concatenate(between))
    at_high = 0 if low == high else at_high
    places = ranks - below
    if places.min() < 0 or places.max() >= at_low + len(inner) + at_high:
        return None
    first, second = (
        low if place < at_low else inner[place - at_low] if place < at_low + len(inner) else high for place in places
    )
    return float(first), float(second)


def _chunks(arrays: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
    for array in arrays:
        flat = array.reshape(-1)
        for first in range(0, len(flat), CHUNK):
            yield flat[first : first + CHUNK].astype(np.float32, copy=False)


def kept_count(values: int, percent: float) -> int:
    """Number of values among the largest (100 − percent) per cent."""
    return values - round(values * percent / 100)


def largest(vectors: np.ndarray, percent: float) -> np.ndarray:
    """Mask of the largest (100 − percent) per cent of each row, shape (n, D)."""
    count = kept_count(vectors.shape[1], percent)
    if count == 0:
        return np.zeros(vectors.shape, bool)
    mask = vectors >= largest_values(vectors, count)[:, :1]
    tied = np.flatnonzero(mask.sum(axis=1) > count)  # rare and slow: which of the equal values are kept is arbitrary
    mask[tied] = False
    mask[tied[:, None], np.argpartition(vectors[tied], -count, axis=1)[:, -count:]] = True
    return mask


def largest_values(vectors: np.ndarray, count: int) -> np.ndarray:
    """The `count` largest values of each row, ascending: ndarray of shape (n, count), float32.

    Stored features have at most 32 bits, so nothing is lost. NumPy sorts float32 with vector instructions, which is
    faster than its partition.
    """
    ordered = vectors.astype(np.float32)
    ordered.sort(axis=1)
    return ordered[:, vectors.shape[1] - count :]


def sharpening(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """exp(s1 / s2) of each row, ndarray of shape (n, 1), from its sums before and after pruning.

    s1 / s2 counts as 0 where s2 is 0, and is at most 80, so that the result stays finite.
    """
    before, after = before[:, None], after[:, None]
    ratio = np.divide(before, after, out=np.zeros_like(before), where=after != 0)
    return np.exp(np.minimum(ratio, LARGEST_EXPONENT))
