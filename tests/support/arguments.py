"""Forms of an argument: those that a public function takes, and those that it refuses.

An argument is *changed* into another form by a function of its NumPy form. `SAME` forms hold the
same values: a function gives the same result or refuses them. `REFUSED` forms do not.
"""

from __future__ import annotations

import datetime
import fractions
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import scipy.sparse
import torch

Change = Callable[[Any], Any]


def read_only(array):
    copy = array.copy()
    copy.flags.writeable = False
    return copy


def strided(array):
    return np.repeat(array, 2, axis=0)[::2]


def big_endian(array):
    return array.astype(array.dtype.newbyteorder(">"))


def masked(array, *, mask):
    return np.ma.masked_array(array, mask=np.full(array.shape, mask))


def frame(array):
    if array.ndim == 1:
        return pd.Series(array)
    return pd.DataFrame(array) if array.ndim == 2 else array


def polars_frame(array):
    if array.ndim == 1:
        return pl.Series(array.tolist())
    return pl.DataFrame(array) if array.ndim == 2 else array


def labelled_series(array):
    return pd.Series(array, index=np.arange(len(array))[::-1])


def with_first(array, value):
    """A list with another first value."""
    values = array.tolist()
    first = values
    while isinstance(first[0], list):
        first = first[0]
    first[0] = value
    return values


def with_a_value(array, value):
    """An array with another value in its middle."""
    changed = array.astype(np.result_type(array.dtype, type(value)))
    changed.reshape(-1)[array.size // 2] = value
    return changed


def tensor(array):
    return torch.tensor(array)


class ArrayLike:
    """An object of a foreign library that NumPy converts."""

    def __init__(self, array):
        self.array = array

    def __array__(self, dtype=None, copy=None):
        return self.array


class Unreadable:
    """An object whose conversion fails."""

    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("on another device")


#: Of any array.
SAME_ARRAY: dict[str, Change] = {
    "list": lambda array: array.tolist(),
    "tuple": lambda array: tuple(array.tolist()),
    "iterator": lambda array: iter(array.tolist()),
    "map": lambda array: map(type(array.tolist()[0]), array.tolist()),
    "values of a dict": lambda array: dict(enumerate(array.tolist())).values(),
    "read only": read_only,
    "strided": strided,
    "Fortran": np.asfortranarray,
    "mask without a masked value": lambda array: masked(array, mask=False),
    "pandas": frame,
    "pandas with an index": lambda array: labelled_series(array) if array.ndim == 1 else array,
    "polars": polars_frame,
    "Arrow": lambda array: pa.array(array.tolist()) if array.ndim == 1 else array,
    "array-like": ArrayLike,
    "list of arrays": lambda array: list(array),
}
#: Of numbers and booleans.
SAME_TENSOR: dict[str, Change] = {
    "tensor": tensor,
    "list of tensors": lambda array: list(torch.tensor(array)),
    "strided tensor": lambda array: torch.tensor(np.repeat(array, 2, axis=0))[::2],
    "matrix": lambda array: np.asmatrix(array) if array.ndim == 2 else array,
}
#: Of numbers that are multiples of 1/8, below 16.
SAME_NUMBERS: dict[str, Change] = {
    "float32": lambda array: array.astype(np.float32),
    "float16": lambda array: array.astype(np.float16),
    "longdouble": lambda array: array.astype(np.longdouble),
    "big-endian": big_endian,
    "bfloat16": lambda array: torch.tensor(array).bfloat16(),
    "half tensor": lambda array: torch.tensor(array).half(),
    "with gradients": lambda array: torch.tensor(array, dtype=torch.float64, requires_grad=True),
    "list with gradients": lambda array: list(
        torch.tensor(array, dtype=torch.float64, requires_grad=True)
    ),
    "negated view": lambda array: (
        torch.complex(
            torch.zeros(array.shape, dtype=torch.float64), -torch.tensor(array, dtype=torch.float64)
        )
        .conj()
        .imag
    ),
    "nullable pandas": lambda array: (
        pd.Series(array, dtype="Float64") if array.ndim == 1 else array
    ),
}
#: Of no kind of array.
REFUSED_ARRAY: dict[str, Change] = {
    "one number": lambda array: 0.5,
    "number without a shape": lambda array: np.array(0.5),
    "None in it": lambda array: with_first(array, None),
    "masked": lambda array: masked(array, mask=True),
    "one text": lambda array: "cat",
    "bytes": lambda array: b"cat",
    "dict": lambda array: {"a": array},
    "set": lambda array: {1.0, 2.0},
    "function": lambda array: len,
    "object": lambda array: object(),
    "four axes": lambda array: np.zeros((2, 2, 2, 2), array.dtype),
    "another axis": lambda array: array[None],
    "batches": lambda array: [array, array[:1]],
    "ragged": lambda array: [[0.5, 0.25], [0.5]],
    "complex": lambda array: np.ones(array.shape, complex),
    "dates": lambda array: np.full(array.shape, "2020-01-01", "datetime64[D]"),
    "dates in a list": lambda array: [datetime.date(2020, 1, 1)] * len(array),
    "records": lambda array: np.zeros(len(array), [("a", float)]),
    "sparse": lambda array: scipy.sparse.csr_matrix(np.eye(3)),
    "sparse tensor": lambda array: torch.eye(3).to_sparse(),
    "tensor without values": lambda array: torch.ones(array.shape, device="meta"),
    "nested tensor": lambda array: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    "unreadable": lambda array: Unreadable(),
    "of objects": lambda array: np.full(array.shape, object(), object),
    "frame of texts": lambda array: pd.DataFrame({"a": ["x", "y"], "b": [1, 2]}),
    "pandas with NA": lambda array: pd.Series([1, pd.NA, *[1] * (len(array) - 2)], dtype="Int64"),
    "polars with null": lambda array: pl.Series([None, *[1.0] * (len(array) - 1)]),
}
REFUSED_NUMBERS: dict[str, Change] = {
    "NaN": lambda array: with_a_value(array, np.nan),
    "tensor with NaN": lambda array: torch.tensor(with_a_value(array, np.nan)),
    "infinite": lambda array: with_a_value(array, np.inf),
    "minus infinity": lambda array: with_a_value(array, -np.inf),
    "half beyond its range": lambda array: torch.full(array.shape, 70000.0).half(),
    "booleans": lambda array: array > 0,
    "a boolean in a list": lambda array: with_first(array, True),
    "texts": lambda array: array.astype(str),
    "a text in a list": lambda array: with_first(array, "0.5"),
    "huge integer": lambda array: with_first(array, 2**70),
    "integers beyond float64": lambda array: np.full(array.shape, 2**60 + 1),
}
REFUSED_TEXTS: dict[str, Change] = {
    "numbers": lambda array: np.full(array.shape, 0.5),
    "booleans": lambda array: np.full(array.shape, True),
    "bytes in it": lambda array: array.astype("S"),
    "half a character": lambda array: with_first(array, "\ud800"),
    "NaN in it": lambda array: with_first(array, float("nan")),
}
REFUSED_BOOLEANS: dict[str, Change] = {
    "zeros and ones": lambda array: array.astype(int),
    "floats": lambda array: array.astype(float),
    "texts": lambda array: array.astype(str),
}
REFUSED_INTEGERS: dict[str, Change] = {
    "halves": lambda array: array + 0.5,
    "below 0": lambda array: with_a_value(array, -1),
    "beyond int16": lambda array: with_a_value(array, 65537),
    "beyond int64": lambda array: np.full(array.shape, 1e30),
}
#: Of one number.
SAME_NUMBER: dict[str, Change] = {
    "of NumPy": np.float64,
    "without a shape": np.array,
    "tensor": torch.tensor,
    "with gradients": lambda value: torch.tensor(float(value), requires_grad=True),
    "fraction": lambda value: fractions.Fraction(value),
    "float": float,
}
REFUSED_NUMBER: dict[str, Change] = {
    "boolean": lambda value: True,
    "boolean of NumPy": lambda value: np.True_,
    "text": str,
    "NaN": lambda value: float("nan"),
    "complex": complex,
    "in a list": lambda value: [value],
    "in an array": lambda value: np.array([value]),
    "masked": lambda value: np.ma.masked,
    "dict": lambda value: {},
}
REFUSED_WORD: dict[str, Change] = {
    "another word": lambda word: "no such word",
    "number": lambda word: 1,
    "boolean": lambda word: True,
    "in a list": lambda word: [word],
    "in an array": lambda word: np.array([word, word]),
    "bytes": lambda word: word.encode(),
}
REFUSED_OBJECT: dict[str, Change] = {
    "list": lambda value: [value],
    "number": lambda value: 1,
    "text": lambda value: "cat",
    "array": lambda value: np.eye(2),
    "frame": lambda value: pl.DataFrame({"image_id": ["a"]}),
    "list of dicts": lambda value: [{"boxes": [[0, 0, 1, 1]], "labels": [0], "scores": [0.5]}],
}


def is_of_whole_numbers(array: np.ndarray) -> bool:
    return array.dtype.kind in "iu"


def same_forms(value: Any) -> Mapping[str, Change]:
    """The forms that hold the same values, by name."""
    if isinstance(value, np.ndarray) and value.dtype == object:
        as_strings = {"strings": lambda array: array.astype(str)}
        return SAME_ARRAY | as_strings
    if isinstance(value, np.ndarray) and value.dtype == bool:
        return SAME_ARRAY | SAME_TENSOR
    if isinstance(value, np.ndarray):
        return SAME_ARRAY | SAME_TENSOR | SAME_NUMBERS
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return SAME_NUMBER
    return {}


def refused_forms(value: Any) -> Mapping[str, Change]:
    """The forms that must be refused, by name."""
    if isinstance(value, np.ndarray) and value.dtype == object:
        return REFUSED_ARRAY | REFUSED_TEXTS
    if isinstance(value, np.ndarray) and value.dtype == bool:
        return REFUSED_ARRAY | REFUSED_BOOLEANS
    if isinstance(value, np.ndarray) and is_of_whole_numbers(value):
        return REFUSED_ARRAY | REFUSED_NUMBERS | REFUSED_INTEGERS
    if isinstance(value, np.ndarray):
        return REFUSED_ARRAY | REFUSED_NUMBERS
    if isinstance(value, str):
        return REFUSED_WORD
    if isinstance(value, (int, float)):
        return REFUSED_NUMBER
    return REFUSED_OBJECT
