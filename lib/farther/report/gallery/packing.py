"""Columns of numbers as texts that a browser turns into typed arrays at once.

A text is a letter for the type of the numbers, and base64 of these, little-endian. The letters are
those of `LETTERS`, which `static/gallery-data.js` has, too.
"""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import polars as pl

#: Letter → type of the numbers.
LETTERS = {
    "B": "<u1",
    "H": "<u2",
    "I": "<u4",
    "b": "<i1",
    "h": "<i2",
    "i": "<i4",
    "f": "<f4",
    "d": "<f8",
}

#: Types of integers, the smallest first.
UNSIGNED = "BHI"
SIGNED = "bhi"


def packed_integers(values: pl.Series | np.ndarray) -> str:
    """A column of integers, in the smallest type that holds all of them.

    Args:
        values: Shape (N,) or (N, K), from −2³¹ on; up to 2³² − 1 where none is negative.

    >>> packed_integers(np.array([1, 255])), packed_integers(np.array([-1, 2]))
    ('BAf8=', 'b/wI=')
    """
    numbers = np.asarray(values).astype(np.int64)
    letters = UNSIGNED
    if numbers.min(initial=0) < 0:
        letters = SIGNED
    largest = numbers.max(initial=0)
    smallest = numbers.min(initial=0)
    for letter in letters:
        limits = np.iinfo(LETTERS[letter])
        if limits.min <= smallest and largest <= limits.max:
            return packed(numbers, letter)
    raise ValueError(f"no type of {letters} holds {smallest} to {largest}")


def packed(values: pl.Series | np.ndarray, letter: str) -> str:
    """A column of numbers in one of the types `LETTERS`."""
    content = np.asarray(values).astype(LETTERS[letter]).tobytes()
    return letter + base64.b64encode(content).decode("ascii")


def unpacked(text: str) -> np.ndarray[Any, Any]:
    """The numbers of a packed column, ndarray of shape (N,)."""
    return np.frombuffer(base64.b64decode(text[1:]), LETTERS[text[:1]])
