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
#: exp of more than this may overflow when multiplied by features and weights.
LARGEST_EXPONENT = 80.0


def percentile(passes: Callable[[], Iterable[np.ndarray]], percent: float) -> float:
    """The percentile of all values of a stream, exactly as `numpy.percentile` interpolates it.

    The first pass counts the values by the upper half of their bits, the second one those in
    question by the lower.

    Args:
        passes: Starts a pass over arrays of float32 or float16 of any shape; called twice.
        percent: 0 to 100.

    Raises:
        ValueError: there are no values.

    >>> percentile(lambda: iter([np.float32([3, 1]), np.float32([2])]), 50)
    2.0
    """
    upper = np.zeros(1 << 16, np.int64)
    for keys in _ordered_bits(passes()):
        upper += np.bincount(keys >> 16, minlength=1 << 16)
    total = int(upper.sum())
    if total == 0:
        raise ValueError("no values")
    position = (total - 1) * percent / 100
    ranks = np.array([math.floor(position), math.ceil(position)])
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
    low, high = np.where(keys >> 31, keys ^ SIGN, ~keys).view(np.float32).tolist()
    return low + (high - low) * (position - math.floor(position))


def _ordered_bits(arrays: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
    """The bits of float32 values as integers of the same order, in chunks."""
    for array in arrays:
        flat = array.reshape(-1)
        for first in range(0, len(flat), CHUNK):
            bits = flat[first : first + CHUNK].astype(np.float32, copy=False).view(np.uint32)
            yield np.where(bits >> 31, ~bits, bits ^ SIGN)


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
