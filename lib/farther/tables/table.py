"""Tables with a declared schema: a Polars frame in memory, Parquet on disk, checked on the way in.

A table class declares its columns as class attributes, and inherits constructor, reader, writer,
row selection and checks.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import polars as pl

from farther.errors import DataError
from farther.tables.columns import SMALL_TABLE, Column
from farther.tables.parquet import read_parquet, write_parquet
from farther.tables.writing import write_aside

#: Whether this process was forked. Polars' threads are in the parent only, and operations on frames
#: would wait for them forever; operations on Series do not.
_is_forked = False


def _note_fork() -> None:
    global _is_forked
    _is_forked = True


os.register_at_fork(after_in_child=_note_fork)


class Table:
    """Base of the tables: columns of equal length.

    Columns are given as keyword arguments (Series, arrays or lists). Each column is an attribute
    too: a read-only NumPy array of shape (N,), or (N, width) for vectors, which shares the frame's
    memory; texts are an object array of `str`. A table does not change; selecting gives another
    table.

    Attributes:
        frame: The rows, a `polars.DataFrame` with the declared columns in the declared order.
        names: Names of its columns.

    Raises:
        DataError: a column is missing, unknown, of a wrong width or length, or holds invalid
            values; names row and field.
    """

    COLUMNS: ClassVar[tuple[Column, ...]] = ()
    #: Columns as they were given, but arrays of many rows as Series.
    _columns: dict[str, pl.Series | np.ndarray]
    #: Arrays of columns that are Series, made at the first use.
    _arrays: dict[str, np.ndarray]
    #: The frame, made at the first use.
    _frame: pl.DataFrame | None

    def __init_subclass__(cls) -> None:
        own_columns = [value for value in vars(cls).values() if isinstance(value, Column)]
        cls.COLUMNS = (*cls.COLUMNS, *own_columns)

    def __init__(self, **columns: Any):
        self._fill(columns, source=None)

    @classmethod
    def declared(cls, names: Iterable[str]) -> tuple[Column, ...]:
        """The declared columns of a table that has columns of these names.

        A class may declare columns by the beginning of their names.
        """
        return cls.COLUMNS

    def _fill(
        self,
        columns: Mapping[str, Any],
        source: str | Path | None,
        checked: Mapping[str, pl.Series | np.ndarray] = {},
    ) -> None:
        """Sets the rows.

        Args:
            columns: Columns by name, which are checked here.
            source: File in messages.
            checked: Columns that were checked before.
        """
        declared = self.declared([*columns, *checked])
        known = [column.name for column in declared]
        for name in columns:
            if name not in known:
                problem = f"unknown column; known: {', '.join(known)}"
                raise DataError(problem, file=source, field=name)

        stored: dict[str, pl.Series | np.ndarray] = {}
        height: int | None = None
        for column in declared:
            name = column.name
            if columns.get(name) is not None:
                values = _stored(name, column.checked(columns[name], source))
            elif name in checked:
                values = checked[name]
            elif column.default is not None:
                values = _stored(name, np.full(height or 0, column.default))
            elif column.optional:
                continue
            else:
                raise DataError("the column is missing", file=source, field=name)
            if height is None:
                height = len(values)
            if len(values) != height:
                problem = f"{len(values)} rows, but {height} in '{known[0]}'"
                raise DataError(problem, file=source, field=name)
            stored[name] = values
        self._set(stored)
        self._check(source)

    def _set(self, columns: dict[str, pl.Series | np.ndarray]) -> None:
        self._columns = columns
        self._arrays = {}
        self._frame = None

    def _check(self, source: str | Path | None) -> None:
        """Refuses rows whose columns contradict each other; for subclasses."""

    def _with(self, columns: dict[str, pl.Series | np.ndarray]) -> Self:
        """The same table with other columns, which are not checked again."""
        table = copy(self)
        table._set(columns)
        return table

    @property
    def names(self) -> tuple[str, ...]:
        """Names of its columns."""
        return tuple(self._columns)

    @property
    def frame(self) -> pl.DataFrame:
        """The rows; see the class."""
        if self._frame is None:
            series = [_series(name, values) for name, values in self._columns.items()]
            self._frame = pl.DataFrame(series)
        return self._frame

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} rows)"

    def _repr_html_(self) -> str:
        """The first rows as a table, which notebooks show."""
        return f"<p>{type(self).__name__}: {len(self):,} rows</p>{self.frame._repr_html_()}"

    def array(self, name: str) -> np.ndarray | None:
        """A column as a NumPy array, None where it is absent."""
        values = self._columns.get(name)
        if not isinstance(values, pl.Series):
            return values
        if name not in self._arrays:
            self._arrays[name] = as_numpy(values)
        return self._arrays[name]

    def columns(self) -> dict[str, np.ndarray]:
        """Arrays by column name, absent columns left out."""
        return {name: self.array(name) for name in self._columns}  # type: ignore[misc]

    def __getitem__(self, rows: Any) -> Self:
        """The selected rows; always a table.

        Args:
            rows: A boolean mask, an index array, a slice or a number.

        Raises:
            IndexError: a mask of another length than the table, or a row that it does not have.
        """
        if isinstance(rows, slice):
            return self._with({name: values[rows] for name, values in self._columns.items()})
        is_mask = isinstance(rows, np.ndarray) and rows.dtype == bool
        if is_mask and rows.shape == (len(self),) and rows.all():
            return self

        # Series by Series: for few rows this takes a tenth of the time of `frame.filter`, and it
        # works after a fork.
        row_numbers = np.atleast_1d(np.arange(len(self), dtype=np.uint32)[rows])
        index = pl.Series(row_numbers)
        selected: dict[str, pl.Series | np.ndarray] = {}
        for name, values in self._columns.items():
            if isinstance(values, pl.Series):
                selected[name] = values[index]
            else:
                selected[name] = _read_only(values[row_numbers])
        return self._with(selected)

    def with_frame(self, frame: pl.DataFrame) -> Self:
        """A table of the same class and header with the rows of a frame.

        The frame takes the place of all columns and is not checked: it must have the declared types
        and may lack optional columns.
        """
        return self._with({series.name: series for series in frame})

    def with_columns(self, **columns: Any) -> Self:
        """The same table with other values in some columns."""
        table = copy(self)
        unchanged = {name: values for name, values in self._columns.items() if name not in columns}
        table._fill(columns, source=None, checked=unchanged)
        return table

    @classmethod
    def concatenate(cls, tables: Sequence[Self]) -> Self:
        """The rows of several tables, in order. A column that one of them lacks is left out.

        Raises:
            ValueError: there is no table.
        """
        if not tables:
            raise ValueError("nothing to concatenate")
        with_rows = [table for table in tables if len(table)] or tables[:1]
        columns: dict[str, pl.Series | np.ndarray] = {}
        for name in tables[0].names:
            if all(name in table.names for table in tables):
                columns[name] = _concatenated(name, [table._columns[name] for table in with_rows])
        return tables[0]._with(columns)

    @classmethod
    def empty(cls) -> Self:
        """A table without rows."""
        return cls(**cls._required_columns())

    @classmethod
    def _required_columns(cls) -> dict[str, pl.Series]:
        """The columns that every table has, without rows."""
        return {column.name: column.without_rows() for column in cls.COLUMNS if not column.optional}

    @classmethod
    def from_frame(cls, frame: pl.DataFrame, source: str | Path | None = None) -> Self:
        """The table of a frame, whose undeclared columns are left out.

        Args:
            frame: The rows.
            source: File in messages.
        """
        table = cls.__new__(cls)
        table._fill(cls._declared_columns(frame), source)
        return table

    @classmethod
    def _declared_columns(cls, frame: pl.DataFrame) -> dict[str, pl.Series]:
        """The columns of a frame that the class declares."""
        names = [column.name for column in cls.declared(frame.columns)]
        return {name: frame[name] for name in names if name in frame.columns}

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
        return cls.from_frame(read_parquet(path), path)


def _stored(name: str, values: pl.Series | np.ndarray) -> pl.Series | np.ndarray:
    """A column as a table stores it.

    A short array is a copy that cannot be written to; a long one becomes a Series.
    """
    if isinstance(values, pl.Series) or len(values) > SMALL_TABLE:
        return _series(name, values)
    return _read_only(np.array(values, order="C"))


def _series(name: str, values: pl.Series | np.ndarray) -> pl.Series:
    """A column as a Series of this name."""
    if isinstance(values, pl.Series):
        if values.name == name:
            return values
        return values.alias(name)
    if values.dtype == object:
        return pl.Series(name, values, pl.String)
    return pl.Series(name, values)


def _concatenated(name: str, columns: Sequence[pl.Series | np.ndarray]) -> pl.Series | np.ndarray:
    """One column from those of several tables."""
    series = [values for values in columns if isinstance(values, pl.Series)]
    dtypes = {values.dtype for values in series}
    if len(series) == len(columns) and len(dtypes) == 1:
        return pl.concat(series, rechunk=True)

    # Arrays, or vectors of float16 and of float32.
    arrays = []
    for values in columns:
        if isinstance(values, pl.Series):
            values = values.to_numpy()
        arrays.append(values)
    return _stored(name, np.concatenate(arrays))


def _read_only(values: np.ndarray) -> np.ndarray:
    values.flags.writeable = False
    return values


def as_numpy(series: pl.Series) -> np.ndarray:
    """A column as an array; texts as objects.

    Equal texts share one object where they follow each other or where there are few different ones.
    """
    if series.dtype != pl.String or _is_forked or len(series) < SMALL_TABLE:
        return series.to_numpy()
    starts_run = (series != series.shift()).fill_null(True).to_numpy()
    if 2 * np.count_nonzero(starts_run) <= len(series):
        run = np.cumsum(starts_run) - 1
        return series.filter(starts_run).to_numpy()[run]
    texts = series.unique(maintain_order=True)
    if len(texts) > SMALL_TABLE:
        return series.to_numpy()
    text_index = series.cast(pl.Enum(texts)).to_physical().to_numpy()
    return texts.to_numpy()[text_index]
