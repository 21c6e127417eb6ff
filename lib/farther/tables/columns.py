"""The declared columns of a table: their types, and the checks of their values."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, overload

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

if TYPE_CHECKING:
    from farther.tables.table import Table

#: Four float32: xmin, ymin, xmax, ymax in pixels.
BOX = pl.Array(pl.Float32, 4)
#: Four float32 of 0 or more: the variances of a box's coordinates, in pixels².
VARIANCES = pl.Array(pl.Float32, 4)
#: A row of float16 or float32 values; the data decides on precision and width.
VECTOR = pl.Array

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


class OptionalColumn:
    """A column that a table may lack; as an attribute of a table it is a NumPy array, or None.

    Args:
        dtype: Polars type of a value, `BOX`, `VARIANCES` or `VECTOR`.
        name: Its name, unless it is an attribute of its table's class.
        optional: The column may be absent.
        default: Value of all rows where the column is absent; an optional column without a default
            stays None.
        unique: No value may occur twice.
        among: The texts that are allowed; all where empty.
    """

    def __init__(
        self,
        dtype: Any,
        name: str = "",
        *,
        optional: bool = True,
        default: Any = None,
        unique: bool = False,
        among: Sequence[str] = (),
    ):
        self.dtype = dtype
        self.name = name
        self.optional = optional
        self.default = default
        self.unique = unique
        self.among = among

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, table: None, owner: type) -> Self: ...
    @overload
    def __get__(self, table: Table, owner: type) -> np.ndarray | None: ...
    def __get__(self, table: Table | None, owner: type) -> Self | np.ndarray | None:
        if table is None:
            return self
        return table.array(self.name)

    def __set__(self, table: Table, values: Any) -> None:
        raise AttributeError(
            f"a table does not change; use with_columns({self.name}=…), which returns another"
        )

    @property
    def is_vector(self) -> bool:
        """A value is a row of numbers."""
        return self.dtype == pl.Array

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
            elif self.is_vector or self.dtype in (pl.Float32, pl.Float64):
                refuse_non_finite(values.to_numpy(), self.name)
            self._check(values)
        except DataError as error:
            raise DataError(error.problem, file=source, row=error.row, field=self.name) from None
        return values

    def without_rows(self) -> pl.Series:
        """The column of a table without rows."""
        if self.dtype is VECTOR:
            return pl.Series(self.name, [], pl.Array(pl.Float32, 0))
        return pl.Series(self.name, [], self.dtype)

    def accepts(self, dtype: Any) -> bool:
        """True if values of this Polars type need no conversion."""
        if dtype != self.dtype:
            return False
        return self.dtype is not VECTOR or dtype.inner in (pl.Float16, pl.Float32)

    def _from_array(self, values: Any) -> pl.Series | np.ndarray:
        if self.dtype == pl.String:
            return _texts(values, self.name)
        if self.is_vector:
            return self._as_vectors(values)
        return self._as_scalars(values)

    def _as_vectors(self, values: Any) -> np.ndarray:
        """Rows of numbers, float32; of a column that has no width of its own also float16."""
        if self.dtype is not VECTOR:
            return floats(values, self.name, shape=(None, *self.dtype.shape), dtype=np.float32)
        array = array_of(values, self.name)
        dtype = np.float16 if array.dtype == np.float16 else np.float32
        return floats(array, self.name, shape=(None, None), dtype=dtype)

    def _as_scalars(self, values: Any) -> np.ndarray:
        """One value per row."""
        dtype = np.dtype(_NUMPY[self.dtype])
        if dtype == np.bool_:
            return booleans(values, self.name)
        if dtype.kind == "i":
            return integers(values, self.name, dtype=dtype)
        return floats(values, self.name, dtype=dtype)

    def _check(self, values: pl.Series | np.ndarray) -> None:
        if self.dtype is BOX or self.dtype is VARIANCES:
            self._check_limits(values.to_numpy() if isinstance(values, pl.Series) else values)
        if self.among:
            row = _first_true(~_is_among(values, self.among))
            if row is not None:
                known = ", ".join(self.among)
                raise DataError(f"unknown {self.name} {values[row]!r}; known: {known}", row=row)
        if self.unique:
            row = first_repeated(values)
            if row is not None:
                raise DataError(f"{values.item(row)!r} is in an earlier row too", row=row)

    def _check_limits(self, array: np.ndarray) -> None:
        """Refuses invalid boxes, and negative variances."""
        if self.dtype is BOX:
            _check_edges("x", array[:, 0], array[:, 2])
            _check_edges("y", array[:, 1], array[:, 3])
        if self.dtype is VARIANCES:
            negative_row = _first_true(array.min(axis=1, initial=0) < 0)
            if negative_row is not None:
                lowest = array[negative_row].min()
                raise DataError(f"a variance is 0 or more, found {lowest:g}", row=negative_row)


class Column(OptionalColumn):
    """A column whose attribute is an array, where that of an `OptionalColumn` may be None.

    Without further arguments each table must have it. With a `default` it may be left out, and all
    rows have the default. With `optional=True` it may be absent, as `Regions.logits`: the attribute
    is then None, although its type does not say so, and code asks `has` before it uses it.
    """

    def __init__(self, dtype: Any, *, optional: bool = False, default: Any = None, **options: Any):
        may_be_absent = optional or default is not None
        super().__init__(dtype, optional=may_be_absent, default=default, **options)

    @overload
    def __get__(self, table: None, owner: type) -> Self: ...
    @overload
    def __get__(self, table: Table, owner: type) -> np.ndarray: ...
    def __get__(self, table: Table | None, owner: type) -> Self | np.ndarray:
        return super().__get__(table, owner)  # type: ignore[return-value]


def _first_true(mask: np.ndarray) -> int | None:
    """The first row where a mask is true."""
    if not mask.any():
        return None
    return int(mask.argmax())


def _is_among(values: pl.Series | np.ndarray, texts: Sequence[str]) -> np.ndarray:
    """Mask of the values that are one of several texts."""
    is_text = [np.asarray(values == text) for text in texts]
    return np.any(is_text, axis=0)


def _check_edges(axis: str, low: np.ndarray, high: np.ndarray) -> None:
    row = _first_true(high < low)
    if row is not None:
        raise DataError(f"{axis}max {high[row]:g} is below {axis}min {low[row]:g}", row=row)


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
