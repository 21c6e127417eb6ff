"""Tables with a declared schema: a Polars frame in memory, Parquet on disk, checked on the way in.

A table class declares its columns as class attributes; constructor, reader, writer, row selection and checks follow.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Self, overload

import numpy as np
import polars as pl

from farther.errors import DataError
from farther.tables.checks import check_at_least_0, check_boxes, check_finite, texts
from farther.tables.files import write_aside

#: Rows per Parquet row group and per batch of a reader that streams.
ROW_GROUP = 16_384

#: Four float32: xmin, ymin, xmax, ymax in pixels.
BOX = pl.Array(pl.Float32, 4)
#: Four float32 of 0 or more: the variances of a box's coordinates, in pixels².
VARIANCES = pl.Array(pl.Float32, 4)
#: A row of float16 or float32 values; the data decides on precision and width.
VECTOR = pl.Array

#: Whether this process was forked. Polars' threads are in the parent only, and operations on frames would wait for them
#: forever; operations on Series do not.
_forked = False


def _note_fork() -> None:
    global _forked
    _forked = True


os.register_at_fork(after_in_child=_note_fork)

#: Below this number of texts, looking for runs of equal ones takes longer than it saves.
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
        dtype: Polars type of a value, `BOX` or `VECTOR`.
        optional: The column may be absent.
        default: Value of all rows where the column is absent; an optional column without a default stays None.
        unique: No value may occur twice.
    """

    def __init__(self, dtype: Any, *, optional: bool = True, default: Any = None, unique: bool = False):
        self.dtype, self.optional, self.default, self.unique = dtype, optional, default, unique
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, table: None, owner: type) -> Self: ...
    @overload
    def __get__(self, table: Table, owner: type) -> np.ndarray | None: ...
    def __get__(self, table: Table | None, owner: type) -> Self | np.ndarray | None:
        return self if table is None else table.array(self.name)

    def __set__(self, table: Table, values: Any) -> None:
        raise AttributeError(f"a table does not change; use with_columns({self.name}=…), which returns another")

    @property
    def is_vector(self) -> bool:
        """A value is a row of numbers."""
        return self.dtype == pl.Array

    def series(self, values: Any, source: str | Path | None = None) -> pl.Series:
        """`values` (a Series, an array, a list) as a Series of this column's type.

        Raises:
            DataError: a value is null, of another type or width, not finite, or not a box; names row and field.
        """
        if isinstance(values, pl.Series):
            values = self._without_nulls_and_lists(values, source)
        if not isinstance(values, pl.Series) or not self._accepts(values.dtype):
            values = self._from_array(values, source)
        if values.name != self.name:
            values = values.alias(self.name)
        self._check(values, source)
        return values

    def _accepts(self, dtype: Any) -> bool:
        return dtype == self.dtype and (self.dtype is not VECTOR or dtype.inner in (pl.Float16, pl.Float32))

    def _without_nulls_and_lists(self, values: pl.Series, source: str | Path | None) -> pl.Series:
        """The Series with lists of one width as an Array, categories as text."""
        if values.null_count():
            raise DataError("the value is null", file=source, row=values.is_null().arg_max(), field=self.name)
        if isinstance(values.dtype, (pl.Categorical, pl.Enum)):
            return values.cast(pl.String)
        if isinstance(values.dtype, pl.List):
            lengths = values.list.len().to_numpy()
            odd = np.flatnonzero(lengths != lengths[:1])
            if len(odd):
                problem = f"{lengths[odd[0]]} values, but {lengths[0]} in row 0"
                raise DataError(problem, file=source, row=int(odd[0]), field=self.name)
            return values.list.to_array(int(lengths[0]) if len(lengths) else 0)
        return values

    def _from_array(self, values: Any, source: str | Path | None) -> pl.Series:
        try:
            if self.dtype == pl.String:
                return texts(self.name, values)
            array = values.to_numpy() if isinstance(values, pl.Series) else np.asarray(values)
            array = self._as_vectors(array) if self.is_vector else self._as_scalars(array)
        except DataError as error:
            raise DataError(error.problem, file=source, row=error.row, field=self.name) from None
        except (TypeError, ValueError) as error:
            raise DataError(f"expected {self.dtype} values: {error}", file=source, field=self.name) from None
        return pl.Series(self.name, array)

    def _as_vectors(self, array: np.ndarray) -> np.ndarray:
        if self.dtype is not VECTOR or array.dtype not in (np.float16, np.float32):
            array = array.astype(np.float32, copy=False)
        if array.ndim != 2:
            raise DataError(f"expected one row of numbers per row, found shape {array.shape}")
        if self.dtype is not VECTOR and array.shape[1:] != self.dtype.shape:
            raise DataError(f"expected {self.dtype.shape[0]} values per row, found {array.shape[1]}")
        return array

    def _as_scalars(self, array: np.ndarray) -> np.ndarray:
        target = np.dtype(_NUMPY[self.dtype])
        if array.dtype.kind not in "buif":
            raise DataError(f"expected {target} values, found {array.dtype}")
        if array.ndim != 1:
            raise DataError(f"expected one value per row, found shape {array.shape}")
        cast = array.astype(target, copy=False)
        if target.kind in "iu" and array.dtype != target:
            wrong = np.flatnonzero(cast != array)
            if len(wrong):
                raise DataError(f"expected {target}, found {array[wrong[0]]!r}", row=int(wrong[0]))
        return cast

    def _check(self, values: pl.Series, source: str | Path | None) -> None:
        if self.is_vector or values.dtype.is_float():
            check_finite(self.name, values.to_numpy(), source)
        if self.dtype is BOX:
            check_boxes(self.name, values.to_numpy(), source)
        if self.dtype is VARIANCES:
            check_at_least_0(self.name, values.to_numpy(), source)
        if self.unique and values.n_unique() != len(values):
            row = (~values.is_first_distinct()).arg_max()
            assert row is not None
            raise DataError(f"{values[row]!r} is in an earlier row too", file=source, row=row, field=self.name)


class Column(OptionalColumn):
    """A column that every table of its class has, as an argument, by its default, or (`optional`) after a check."""

    def __init__(self, dtype: Any, *, optional: bool = False, default: Any = None, unique: bool = False):
        super().__init__(dtype, optional=optional or default is not None, default=default, unique=unique)

    @overload
    def __get__(self, table: None, owner: type) -> Self: ...
    @overload
    def __get__(self, table: Table, owner: type) -> np.ndarray: ...
    def __get__(self, table: Table | None, owner: type) -> Self | np.ndarray:
        return super().__get__(table, owner)  # type: ignore[return-value]


class Table:
    """Base of the tables: columns of equal length, given as keyword arguments (Series, arrays or lists).

    Attributes:
        frame: The rows, a `polars.DataFrame` with the declared columns in the declared order.

    Each column is an attribute too: a read-only NumPy array of shape (N,), or (N, width) for vectors, which shares the
    frame's memory; texts are an object array of `str`. A table does not change; selecting gives another table.

    Raises:
        DataError: a column is missing, unknown, of a wrong width or length, or holds invalid values; names row and
            field.
    """

    COLUMNS: ClassVar[tuple[OptionalColumn, ...]] = ()
    frame: pl.DataFrame

    def __init_subclass__(cls) -> None:
        cls.COLUMNS += tuple(c for c in vars(cls).values() if isinstance(c, OptionalColumn))

    def __init__(self, **columns: Any):
        self._fill(columns, source=None)

    def _fill(self, columns: dict[str, Any], source: str | Path | None) -> None:
        known = [c.name for c in self.COLUMNS]
        for name in columns:
            if name not in known:
                raise DataError(f"unknown column; known: {', '.join(known)}", file=source, field=name)
        found: dict[str, pl.Series] = {}
        height: int | None = None
        for column in self.COLUMNS:
            if (values := columns.get(column.name)) is None:
                if not column.optional:
                    raise DataError("the column is missing", file=source, field=column.name)
                if column.default is None:
                    continue
                values = pl.repeat(column.default, height or 0, dtype=column.dtype, eager=True)
            found[column.name] = series = column.series(values, source)
            height = len(series) if height is None else height
            if len(series) != height:
                problem = f"{len(series)} rows, but {height} in '{known[0]}'"
                raise DataError(problem, file=source, field=column.name)
        self.frame = pl.DataFrame(found)
        self._arrays: dict[str, np.ndarray | None] = {}
        self._check(source)

    def _check(self, source: str | Path | None) -> None:
        """Refuses rows whose columns contradict each other; for subclasses."""

    def __len__(self) -> int:
        return self.frame.height

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} rows)"

    def array(self, name: str) -> np.ndarray | None:
        """A column as a NumPy array, None where it is absent."""
        if name not in self._arrays:
            self._arrays[name] = as_numpy(self.frame[name]) if name in self.frame.columns else None
        return self._arrays[name]

    def columns(self) -> dict[str, np.ndarray]:
        """Arrays by column name, absent columns left out."""
        return {name: as_numpy(self.frame[name]) for name in self.frame.columns}

    def __getitem__(self, rows: Any) -> Self:
        """The rows that a boolean mask, an index array or a slice selects.

        Raises:
            TypeError: a single number: a table has rows, not items.
            IndexError: a mask of another length than the table.
        """
        if isinstance(rows, slice):
            return self.with_frame(self.frame[rows])
        rows = rows if isinstance(rows, pl.Series) else np.asarray(rows)
        if isinstance(rows, np.ndarray) and rows.ndim == 0:
            raise TypeError("select rows by mask, index array or slice, not by a single number")
        if rows.dtype in (np.bool_, pl.Boolean):
            if len(rows) != len(self):
                raise IndexError(f"a mask of {len(rows)} values for {len(self)} rows")
            if _forked:
                return self.with_frame(pl.DataFrame([series.filter(rows) for series in self.frame]))
            return self.with_frame(self.frame.filter(rows))
        if _forked:
            return self.with_frame(pl.DataFrame([series[rows] for series in self.frame]))
        return self.with_frame(self.frame[rows])

    def filter(self, *predicates: Any) -> Self:
        """The rows for which Polars expressions hold.

        Raises:
            RuntimeError: this process was forked.
        """
        if _forked:
            raise RuntimeError("Polars expressions never return in a forked process; select rows by a mask instead")
        return self.with_frame(self.frame.filter(*predicates))

    def with_frame(self, frame: pl.DataFrame) -> Self:
        """The same table with other rows or fewer optional columns, which are not checked again."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__, frame=frame, _arrays={})
        return other

    def with_columns(self, **columns: Any) -> Self:
        """The same table with other values in some columns.

        Raises:
            DataError: see the class.
        """
        other = self.with_frame(self.frame)
        other._fill({**{name: self.frame[name] for name in self.frame.columns}, **columns}, source=None)
        return other

    @classmethod
    def concatenate(cls, tables: Sequence[Self]) -> Self:
        """The rows of several tables, in order. A column that one of them lacks is left out.

        Raises:
            ValueError: there is no table.
        """
        if not tables:
            raise ValueError("nothing to concatenate")
        names = [n for n in tables[0].frame.columns if all(n in t.frame.columns for t in tables)]
        if _forked:
            known = [c for c in cls.COLUMNS if c.name in names]
            joined = [c.series(np.concatenate([t.frame[c.name].to_numpy() for t in tables])) for c in known]
            return tables[0].with_frame(pl.DataFrame(joined))
        frames = [t.frame.select(names) for t in tables]
        return tables[0].with_frame(pl.concat(frames, how="vertical_relaxed", rechunk=True))

    @classmethod
    def empty(cls) -> Self:
        """A table without rows."""
        return cls(**{c.name: _no_rows(c) for c in cls.COLUMNS if not c.optional})

    @classmethod
    def from_frame(cls, frame: pl.DataFrame, source: str | Path | None = None) -> Self:
        """Builds the table from a frame, whose undeclared columns are left out; `source` is the file in messages.

        Raises:
            DataError: see the class.
        """
        made = cls.__new__(cls)
        made._fill({c.name: frame[c.name] for c in cls.COLUMNS if c.name in frame.columns}, source)
        return made

    def write(self, path: str | Path) -> None:
        """Writes a Parquet file (zstd), aside first, then renamed."""
        with write_aside(path) as aside:
            write_parquet(self.frame, aside)

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Reads a Parquet file.

        Raises:
            DataError: the file is absent or not Parquet, or see the class.
        """
        with parquet_errors(path):
            frame = pl.read_parquet(path, glob=False)
        return cls.from_frame(frame, path)


def as_numpy(series: pl.Series) -> np.ndarray:
    """A column as an array; texts as objects, one per run of equal texts where runs are long."""
    if series.dtype != pl.String or _forked or len(series) < FEW:
        return series.to_numpy()
    starts = (series != series.shift()).fill_null(True).to_numpy()
    if 2 * np.count_nonzero(starts) > len(series):
        return series.to_numpy()
    return series.filter(starts).to_numpy()[np.cumsum(starts) - 1]


def write_parquet(frame: pl.DataFrame, path: str | Path) -> None:
    """Writes a Parquet file (zstd) in row groups of `ROW_GROUP`; the same rows give the same bytes."""
    frame.write_parquet(path, compression="zstd", compression_level=1, row_group_size=ROW_GROUP)


def read_batches(
    path: str | Path, columns: Sequence[str] | None = None, size: int = ROW_GROUP
) -> Iterator[pl.DataFrame]:
    """The rows of a Parquet file, `size` at a time, one of them in memory; a file without rows gives an empty frame.

    Args:
        path: The file.
        columns: Columns to read, those that the file has; None for all.
        size: Rows per frame.

    Raises:
        DataError: the file is absent or is not Parquet.
    """
    with parquet_errors(path):
        lazy = pl.scan_parquet(path, glob=False)
        if columns is not None:
            lazy = lazy.select(pl.col([name for name in lazy.collect_schema() if name in columns]))
        count = lazy.select(pl.len()).collect().item()
    for start in range(0, max(count, 1), size):
        with parquet_errors(path):
            frame = lazy.slice(start, size).collect()
        yield frame


@contextmanager
def parquet_errors(path: str | Path) -> Iterator[None]:
    """Turns what Polars raises while it reads `path` into a DataError."""
    try:
        yield
    except FileNotFoundError:
        raise DataError("the file does not exist", file=path) from None
    except pl.exceptions.PolarsError as error:
        raise DataError(f"not a readable Parquet file: {error}", file=path) from None


def _no_rows(column: OptionalColumn) -> pl.Series:
    return pl.Series(column.name, [], pl.Array(pl.Float32, 0) if column.dtype is VECTOR else column.dtype)
