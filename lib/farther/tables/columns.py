"""The declared columns of a table: their types, and the checks of their values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Literal, Protocol, Self, TypeVar, overload

import numpy as np
import polars as pl

from farther.errors import DataError, shorten
from farther.tables.arguments import (
    array_of,
    booleans,
    floats,
    integers,
    refuse_non_finite,
    texts,
)

#: The array of a required column, or that of an optional one, which may be None.
Values = TypeVar("Values", bound=np.ndarray | None, covariant=True)

#: Tables of at most this number of rows stay arrays until their frame is used: making it takes as
#: long as all that is done with the detections of an image.
SMALL_TABLE = 256

_NUMPY = {
    pl.Boolean: np.bool_,
    pl.Int16: np.int16,
    pl.Int32: np.int32,
    pl.Int64: np.int64,
    pl.Float32: np.float32,
    pl.Float64: np.float64,
}


class HasArrays(Protocol):
    """A table, as its columns see it; see `farther.tables.table.Table`."""

    def array(self, name: str) -> np.ndarray | None:
        """A column as a NumPy array, None where it is absent."""


@dataclass(frozen=True)
class Vectors:
    """The type of a column whose value is a row of numbers.

    Args:
        width: Numbers in a row, which are float32; None where the data decides on width and
            precision, float16 or float32.
        check: Raises DataError, with the row, where an array of shape (N, width) has invalid rows.
    """

    width: int | None = None
    check: Callable[[np.ndarray], None] | None = None

    @property
    def dtype(self) -> Any:
        """Its Polars type; any array where the data decides on the width."""
        if self.width is None:
            return pl.Array
        return pl.Array(pl.Float32, self.width)


class Column(Generic[Values]):
    """A column of a table; as an attribute of a table it is a NumPy array.

    Without further arguments each table must have it. With a `default` it may be left out, and all
    rows have the default. With `optional=True` it may be absent, and the attribute is then None.

    Args:
        dtype: Polars type of a value, `BOX`, `VARIANCES` or `VECTOR`.
        name: Its name, unless it is an attribute of its table's class.
        optional: The column may be absent.
        default: Value of all rows where the column is absent.
        unique: No value may occur twice.
        among: The texts that are allowed; all where empty.
    """

    @overload
    def __init__(
        self: Column[np.ndarray],
        dtype: Any,
        name: str = "",
        *,
        default: Any = None,
        unique: bool = False,
        among: Sequence[str] = (),
    ): ...
    @overload
    def __init__(
        self: Column[np.ndarray | None], dtype: Any, name: str = "", *, optional: Literal[True]
    ): ...
    def __init__(
        self,
        dtype: Any,
        name: str = "",
        *,
        optional: bool = False,
        default: Any = None,
        unique: bool = False,
        among: Sequence[str] = (),
    ):
        self.vectors: Vectors | None = None
        if isinstance(dtype, Vectors):
            self.vectors = dtype
            dtype = dtype.dtype
        self.dtype = dtype
        self.name = name
        self.optional = optional or default is not None
        self.default = default
        self.unique = unique
        self.among = among

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, table: None, owner: type) -> Self: ...
    @overload
    def __get__(self, table: HasArrays, owner: type) -> Values: ...
    def __get__(self, table: HasArrays | None, owner: type) -> Any:
        if table is None:
            return self
        return table.array(self.name)

    def __set__(self, table: HasArrays, values: Any) -> None:
        raise AttributeError(
            f"a table does not change; use with_columns({self.name}=…), which returns another"
        )

    def checked(self, values: Any, source: str | Path | None = None) -> pl.Series | np.ndarray:
        """Values in this column's type.

        Args:
            values: A Series, an array, or a list.
            source: File in messages.

        Returns:
            A Series of this type as it is. Other values as an array; texts of more than
            `SMALL_TABLE` rows as a Series.

        Raises:
            DataError: a value is null, of another type or width, not finite, or not a box; names
                row and field.
        """
        try:
            if isinstance(values, pl.Series):
                values = _dense(values)
            if not isinstance(values, pl.Series) or not self.accepts(values.dtype):
                values = self._from_array(values)
            elif self.vectors is not None or self.dtype in (pl.Float32, pl.Float64):
                refuse_non_finite(values.to_numpy(), self.name)
            self._check(values)
        except DataError as error:
            raise DataError(error.problem, file=source, row=error.row, field=self.name) from None
        return values

    def without_rows(self) -> pl.Series:
        """The column of a table without rows."""
        dtype = self.dtype
        if self.vectors == VECTOR:
            dtype = pl.Array(pl.Float32, 0)
        return pl.Series(self.name, [], dtype)

    def accepts(self, dtype: Any) -> bool:
        """True if values of this Polars type need no conversion."""
        if self.vectors == VECTOR:
            return dtype == pl.Array and dtype.inner in (pl.Float16, pl.Float32)
        return dtype == self.dtype

    def _from_array(self, values: Any) -> pl.Series | np.ndarray:
        if self.vectors is not None:
            return _as_vectors(values, self.name, self.vectors.width)
        if self.dtype == pl.String:
            return _texts(values, self.name)
        return self._as_scalars(values)

    def _as_scalars(self, values: Any) -> np.ndarray:
        """One value per row."""
        dtype = np.dtype(_NUMPY[self.dtype])
        if dtype == np.bool_:
            return booleans(values, self.name)
        if dtype.kind == "i":
            return integers(values, self.name, dtype=dtype)
        return floats(values, self.name, dtype=dtype)

    def _check(self, values: pl.Series | np.ndarray) -> None:
        if self.vectors is not None and self.vectors.check is not None:
            self.vectors.check(values.to_numpy() if isinstance(values, pl.Series) else values)
        if self.among:
            row = _first_true(~_is_among(values, self.among))
            if row is not None:
                known = ", ".join(self.among)
                raise DataError(f"unknown {self.name} {values[row]!r}; known: {known}", row=row)
        if self.unique:
            row = first_repeated(values)
            if row is not None:
                raise DataError(f"{values.item(row)!r} is in an earlier row too", row=row)


def _as_vectors(values: Any, name: str, width: int | None) -> np.ndarray:
    """Rows of numbers, float32; without a width of their own also float16."""
    if width is not None:
        return floats(values, name, shape=(None, width), dtype=np.float32)
    array = array_of(values, name)
    dtype = np.float16 if array.dtype == np.float16 else np.float32
    return floats(array, name, shape=(None, None), dtype=dtype)


def _first_true(mask: np.ndarray) -> int | None:
    """The first row where a mask is true."""
    if not mask.any():
        return None
    return int(mask.argmax())


def _is_among(values: pl.Series | np.ndarray, texts: Sequence[str]) -> np.ndarray:
    """Mask of the values that are one of several texts."""
    is_text = [np.asarray(values == text) for text in texts]
    return np.any(is_text, axis=0)


def _check_boxes(boxes: np.ndarray) -> None:
    """Refuses boxes whose right or lower edge is before the other."""
    _check_edges("x", boxes[:, 0], boxes[:, 2])
    _check_edges("y", boxes[:, 1], boxes[:, 3])


def _check_edges(axis: str, low: np.ndarray, high: np.ndarray) -> None:
    row = _first_true(high < low)
    if row is not None:
        raise DataError(f"{axis}max {high[row]:g} is below {axis}min {low[row]:g}", row=row)


def _check_variances(variances: np.ndarray) -> None:
    """Refuses negative variances."""
    row = _first_true(variances.min(axis=1, initial=0) < 0)
    if row is not None:
        raise DataError(f"a variance is 0 or more, found {variances[row].min():g}", row=row)


#: Four float32: xmin, ymin, xmax, ymax in pixels.
BOX = Vectors(4, _check_boxes)
#: Four float32 of 0 or more: the variances of a box's coordinates, in pixels².
VARIANCES = Vectors(4, _check_variances)
#: A row of float16 or float32 values; the data decides on precision and width.
VECTOR = Vectors()


def _dense(values: pl.Series) -> pl.Series:
    """The Series with lists of one width as an Array, categories as text; refuses nulls."""
    if values.null_count():
        raise DataError("the value is null", row=values.is_null().arg_max())
    if isinstance(values.dtype, (pl.Categorical, pl.Enum)):
        return values.cast(pl.String)
    if not isinstance(values.dtype, pl.List):
        return values
    lengths = values.list.len().to_numpy()
    if not len(lengths):
        return values.list.to_array(0)
    row = _first_true(lengths != lengths[0])
    if row is not None:
        raise DataError(f"{lengths[row]} values, but {lengths[0]} in row 0", row=row)
    return values.list.to_array(int(lengths[0]))


def first_repeated(values: pl.Series | np.ndarray) -> int | None:
    """The first row with the value of an earlier row; None if all values differ."""
    # An array of texts has as many bytes for each as the longest one.
    if isinstance(values, pl.Series) and values.dtype != pl.String:
        values = values.to_numpy()
    if isinstance(values, np.ndarray) and values.dtype.kind == "i":
        is_increasing = bool(np.all(values[1:] > values[:-1]))
        if is_increasing:
            return None
    # `n_unique` never returns in a forked process.
    python_values = values.to_list() if isinstance(values, pl.Series) else values.tolist()
    if len(set(python_values)) == len(python_values):
        return None
    return int(pl.Series(python_values).is_first_distinct().to_numpy().argmin())


def _texts(values: Any, name: str) -> pl.Series | np.ndarray:
    """Texts as an array if there are few, as a Series if there are many."""
    if isinstance(values, pl.Series) and values.dtype.is_nested() and len(values):
        # Its objects may take gigabytes.
        raise DataError(f"expected text, found {shorten(values.dtype)}", row=0)
    if isinstance(values, np.ndarray) and values.size > SMALL_TABLE:
        series = _series_of_texts(values)
        if series is not None:
            return series
    array = texts(values, name, strict=True)
    if len(array) <= SMALL_TABLE:
        return array
    return pl.Series(array, dtype=pl.String)


def _series_of_texts(array: np.ndarray) -> pl.Series | None:
    """The Series of an array of texts, which checks each in less time than `texts`.

    None where the array has another value.
    """
    if array.dtype != object or array.ndim != 1 or isinstance(array, np.ma.MaskedArray):
        return None
    try:
        series = pl.Series(array, dtype=pl.String)
    except (TypeError, UnicodeEncodeError, pl.exceptions.PolarsError):
        return None
    if series.null_count():
        return None
    return series
