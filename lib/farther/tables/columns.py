"""The declared columns of a table: their types, and the checks of their values."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, overload

import numpy as np
import polars as pl

from farther.errors import DataError, shorten
from farther.tables.arrays import array_of

if TYPE_CHECKING:
    from farther.tables.table import Table

#: Four float32: xmin, ymin, xmax, ymax in pixels.
BOX = pl.Array(pl.Float32, 4)
#: Four float32 of 0 or more: the variances of a box's coordinates, in pixels².
VARIANCES = pl.Array(pl.Float32, 4)
#: A row of float16 or float32 values; the data decides on precision and width.
VECTOR = pl.Array

#: Tables of at most this number of rows stay arrays until their frame is asked for: making it takes
#: as long as all that is done with the detections of an image.
FEW = 256

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
        self.dtype, self.optional, self.default, self.unique, self.among = (
            dtype,
            optional,
            default,
            unique,
            among,
        )
        self.name = name

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, table: None, owner: type) -> Self: ...
    @overload
    def __get__(self, table: Table, owner: type) -> np.ndarray | None: ...
    def __get__(self, table: Table | None, owner: type) -> Self | np.ndarray | None:
        return self if table is None else table.array(self.name)

    def __set__(self, table: Table, values: Any) -> None:
        raise AttributeError(
            f"a table does not change; use with_columns({self.name}=…), which returns another"
        )

    @property
    def is_vector(self) -> bool:
        """A value is a row of numbers."""
        return self.dtype == pl.Array

    def checked(self, values: Any, source: str | Path | None = None) -> pl.Series | np.ndarray:
        """`values` (a Series, an array, a list) in this column's type: a Series as it is, other values as an array.

        Raises:
            DataError: a value is null, of another type or width, not finite, or not a box; names
                row and field.
        """
        try:
            if isinstance(values, pl.Series):
                values = _dense(values)
            if not isinstance(values, pl.Series) or not self.accepts(values.dtype):
                values = self._from_array(values)
            self._check(values)
        except DataError as error:
            raise DataError(error.problem, file=source, row=error.row, field=self.name) from None
        return values

    def none(self) -> pl.Series:
        """The column of a table without rows."""
        return pl.Series(
            self.name, [], pl.Array(pl.Float32, 0) if self.dtype is VECTOR else self.dtype
        )

    def accepts(self, dtype: Any) -> bool:
        """True if values of this Polars type are taken as they are."""
        return dtype == self.dtype and (
            self.dtype is not VECTOR or dtype.inner in (pl.Float16, pl.Float32)
        )

    def _from_array(self, values: Any) -> pl.Series | np.ndarray:
        if self.dtype == pl.String:
            return _texts(values)
        try:
            array = values.to_numpy() if isinstance(values, pl.Series) else array_of(values)
            return self._as_vectors(array) if self.is_vector else self._as_scalars(array)
        except (TypeError, ValueError) as error:
            raise DataError(f"expected {self.dtype} values: {error}") from None

    def _as_vectors(self, array: np.ndarray) -> np.ndarray:
        if self.dtype is not VECTOR or array.dtype not in (np.float16, np.float32):
            array = array.astype(np.float32, copy=False)
        if array.ndim != 2:
            raise DataError(f"expected one row of numbers per row, found shape {array.shape}")
        if self.dtype is not VECTOR and array.shape[1:] != self.dtype.shape:
            raise DataError(
                f"expected {self.dtype.shape[0]} values per row, found {array.shape[1]}"
            )
        return array

    def _as_scalars(self, array: np.ndarray) -> np.ndarray:
        target = np.dtype(_NUMPY[self.dtype])
        if array.dtype.kind not in "buif":
            raise DataError(f"expected {target} values, found {array.dtype}")
        if array.ndim != 1:
            raise DataError(f"expected one value per row, found shape {array.shape}")
        cast = array.astype(target, copy=False)
        if (
            array.dtype != target
            and target.kind in "iu"
            and (row := _first(cast != array)) is not None
        ):
            raise DataError(f"expected {target}, found {shorten(array[row])}", row=row)
        return cast

    def _check(self, values: pl.Series | np.ndarray) -> None:
        if self.is_vector or self.dtype in (pl.Float32, pl.Float64):
            array = values if isinstance(values, np.ndarray) else values.to_numpy()
            finite = np.isfinite(array)
            if not finite.all():
                odd = int((finite if array.ndim == 1 else finite.all(axis=1)).argmin())
                raise DataError(f"not a finite number: {array[odd]}", row=odd)
            if self.dtype is BOX:
                for low, high, axis in (0, 2, "x"), (1, 3, "y"):
                    if (row := _first(array[:, high] < array[:, low])) is not None:
                        problem = (
                            f"{axis}max {array[row, high]:g} is below {axis}min {array[row, low]:g}"
                        )
                        raise DataError(problem, row=row)
            if (
                self.dtype is VARIANCES
                and (row := _first(array.min(axis=1, initial=0) < 0)) is not None
            ):
                raise DataError(f"a variance is 0 or more, found {array[row].min():g}", row=row)
        known = [np.asarray(values == one) for one in self.among]
        if known and (row := _first(~np.any(known, axis=0))) is not None:
            raise DataError(
                f"unknown {self.name} {values[row]!r}; known: {', '.join(self.among)}", row=row
            )
        if self.unique and (again := first_repeated(values)) is not None:
            raise DataError(f"{values.item(again)!r} is in an earlier row too", row=again)


class Column(OptionalColumn):
    """A column that every table of its class has, as an argument, by its default, or (`optional`) after a check."""

    def __init__(self, dtype: Any, *, optional: bool = False, default: Any = None, **others: Any):
        super().__init__(dtype, optional=optional or default is not None, default=default, **others)

    @overload
    def __get__(self, table: None, owner: type) -> Self: ...
    @overload
    def __get__(self, table: Table, owner: type) -> np.ndarray: ...
    def __get__(self, table: Table | None, owner: type) -> Self | np.ndarray:
        return super().__get__(table, owner)  # type: ignore[return-value]


def _first(wrong: np.ndarray) -> int | None:
    """The first row that is wrong."""
    return int(wrong.argmax()) if wrong.any() else None


def _dense(values: pl.Series) -> pl.Series:
    """The Series with lists of one width as an Array, categories as text; refuses nulls."""
    if values.null_count():
        raise DataError("the value is null", row=values.is_null().arg_max())
    if isinstance(values.dtype, (pl.Categorical, pl.Enum)):
        return values.cast(pl.String)
    if isinstance(values.dtype, pl.List):
        lengths = values.list.len().to_numpy()
        if (row := _first(lengths != lengths[:1])) is not None:
            raise DataError(f"{lengths[row]} values, but {lengths[0]} in row 0", row=row)
        return values.list.to_array(int(lengths[0]) if len(lengths) else 0)
    return values


def first_repeated(values: pl.Series | np.ndarray) -> int | None:
    """The first row whose value occurs before."""
    if (
        isinstance(values, pl.Series) and values.dtype != pl.String
    ):  # an array of texts has as many bytes for each
        values = values.to_numpy()
    if (
        isinstance(values, np.ndarray)
        and values.dtype.kind == "i"
        and np.all(values[1:] > values[:-1])
    ):
        return None  # as they are numbered
    listed = values.to_list() if isinstance(values, pl.Series) else values.tolist()
    if len(set(listed)) == len(listed):  # `n_unique` never returns in a forked process
        return None
    return int(pl.Series(listed).is_first_distinct().to_numpy().argmin())


def _texts(values: Any) -> pl.Series | np.ndarray:
    """An array of few texts, a Series of many."""
    if isinstance(values, pl.Series) and values.dtype.is_nested() and len(values):
        raise DataError(
            f"expected text, found {shorten(values.dtype)}", row=0
        )  # its objects may take gigabytes
    array = np.asarray(values, dtype=object)
    if array.ndim != 1:
        raise DataError(f"expected one value per row, found shape {array.shape}")
    if len(array) <= FEW and all(type(value) is str for value in array):
        "".join(array).encode()  # refuses what a Series would refuse
        return array
    try:
        found = pl.Series(array, dtype=pl.String)
    except (TypeError, pl.exceptions.PolarsError):
        found = None
    if found is None or found.null_count():
        row = next(row for row, value in enumerate(array) if not isinstance(value, str))
        raise DataError(f"expected text, found {shorten(array[row])}", row=row)
    return found
