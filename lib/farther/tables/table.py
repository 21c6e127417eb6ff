"""Tables with a declared schema: a Polars frame in memory, Parquet on disk, checked on the way in.

A table class declares its columns as class attributes; constructor, reader, writer, row selection
and checks follow.
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
from farther.tables.columns import FEW, OptionalColumn
from farther.tables.parquet import read_parquet, write_parquet
from farther.tables.writing import write_aside

#: Whether this process was forked. Polars' threads are in the parent only, and operations on frames
#: would wait for them forever; operations on Series do not.
_forked = False


def _note_fork() -> None:
    global _forked
    _forked = True


os.register_at_fork(after_in_child=_note_fork)


class Table:
    """Base of the tables: columns of equal length, given as keyword arguments (Series, arrays or lists).

    Attributes:
        frame: The rows, a `polars.DataFrame` with the declared columns in the declared order.
        names: Names of its columns.

    Each column is an attribute too: a read-only NumPy array of shape (N,), or (N, width) for
    vectors, which shares the frame's memory; texts are an object array of `str`. A table does not
    change; selecting gives another table.

    Raises:
        DataError: a column is missing, unknown, of a wrong width or length, or holds invalid
            values; names row and field.
    """

    COLUMNS: ClassVar[tuple[OptionalColumn, ...]] = ()
    #: Columns as they were given, arrays of many rows as Series; and what was made of them when it
    #: was asked for.
    _columns: dict[str, pl.Series | np.ndarray]
    _arrays: dict[str, np.ndarray]
    _frame: pl.DataFrame | None

    def __init_subclass__(cls) -> None:
        cls.COLUMNS += tuple(c for c in vars(cls).values() if isinstance(c, OptionalColumn))

    def __init__(self, **columns: Any):
        self._fill(columns, source=None)

    @classmethod
    def declared(cls, names: Iterable[str]) -> tuple[OptionalColumn, ...]:
        """The declared columns, and those of `names` that the class declares by the beginning of their names."""
        return cls.COLUMNS

    def _fill(
        self, columns: Mapping[str, Any], source: str | Path | None, kept: Mapping[str, Any] = {}
    ) -> None:
        """Sets the rows: those in `kept`, which were checked before, and `columns`."""
        declared = self.declared([*columns, *kept])
        known = [c.name for c in declared]
        for name in columns:
            if name not in known:
                raise DataError(
                    f"unknown column; known: {', '.join(known)}", file=source, field=name
                )
        found: dict[str, pl.Series | np.ndarray] = {}
        height: int | None = None
        for column in declared:
            name = column.name
            if columns.get(name) is not None:
                found[name] = _stored(name, column.checked(columns[name], source))
            elif name in kept:
                found[name] = kept[name]
            elif column.default is not None:
                found[name] = _stored(name, np.full(height or 0, column.default))
            elif column.optional:
                continue
            else:
                raise DataError("the column is missing", file=source, field=name)
            height = len(found[name]) if height is None else height
            if len(found[name]) != height:
                raise DataError(
                    f"{len(found[name])} rows, but {height} in '{known[0]}'",
                    file=source,
                    field=name,
                )
        self._columns, self._arrays, self._frame = found, {}, None
        self._check(source)

    def _check(self, source: str | Path | None) -> None:
        """Refuses rows whose columns contradict each other; for subclasses."""

    def _with(self, columns: dict[str, pl.Series | np.ndarray]) -> Self:
        """The same table with other columns, which are not checked again."""
        other = copy(self)
        other._columns, other._arrays, other._frame = columns, {}, None
        return other

    @property
    def names(self) -> tuple[str, ...]:
        """Names of its columns."""
        return tuple(self._columns)

    @property
    def frame(self) -> pl.DataFrame:
        """The rows; see the class."""
        if self._frame is None:
            self._frame = pl.DataFrame(
                [_series(name, values) for name, values in self._columns.items()]
            )
        return self._frame

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} rows)"

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
        """The rows that a boolean mask, an index array, a slice or a number selects: always a table.

        Raises:
            IndexError: a mask of another length than the table, or a row that it does not have.
        """
        if (
            isinstance(rows, np.ndarray)
            and rows.dtype == bool
            and rows.shape == (len(self),)
            and rows.all()
        ):
            return self
        if isinstance(rows, slice):
            return self._with({name: values[rows] for name, values in self._columns.items()})
        wanted = np.atleast_1d(np.arange(len(self), dtype=np.uint32)[rows])
        # Series by Series: for few rows this takes a tenth of the time of `frame.filter`, and it
        # works after a fork.
        index = pl.Series(wanted)
        found = {
            n: v[index] if isinstance(v, pl.Series) else _read_only(v[wanted])
            for n, v in self._columns.items()
        }
        return self._with(found)

    def with_frame(self, frame: pl.DataFrame) -> Self:
        """The same table with other rows or fewer optional columns, which are not checked again."""
        return self._with({series.name: series for series in frame})

    def with_columns(self, **columns: Any) -> Self:
        """The same table with other values in some columns."""
        other = copy(self)
        other._fill(
            columns,
            None,
            {name: values for name, values in self._columns.items() if name not in columns},
        )
        return other

    @classmethod
    def concatenate(cls, tables: Sequence[Self]) -> Self:
        """The rows of several tables, in order. A column that one of them lacks is left out.

        Raises:
            ValueError: there is no table.
        """
        if not tables:
            raise ValueError("nothing to concatenate")
        filled = [table for table in tables if len(table)] or tables[:1]
        joined: dict[str, pl.Series | np.ndarray] = {}
        for name in tables[0].names:
            if all(name in table.names for table in tables):
                parts = [table._columns[name] for table in filled]
                series = [part for part in parts if isinstance(part, pl.Series)]
                if len(series) == len(parts) and len({part.dtype for part in series}) == 1:
                    joined[name] = pl.concat(series, rechunk=True)
                else:  # arrays, or vectors of float16 and of float32
                    arrays = [
                        part.to_numpy() if isinstance(part, pl.Series) else part for part in parts
                    ]
                    joined[name] = _stored(name, np.concatenate(arrays))
        return tables[0]._with(joined)

    @classmethod
    def empty(cls) -> Self:
        """A table without rows."""
        return cls(**{c.name: c.none() for c in cls.COLUMNS if not c.optional})

    @classmethod
    def from_frame(cls, frame: pl.DataFrame, source: str | Path | None = None) -> Self:
        """Builds the table from a frame, whose undeclared columns are left out; `source` is the file in messages."""
        made = cls.__new__(cls)
        made._fill(
            {c.name: frame[c.name] for c in cls.declared(frame.columns) if c.name in frame.columns},
            source,
        )
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
        return cls.from_frame(read_parquet(path), path)


def _stored(name: str, values: pl.Series | np.ndarray) -> pl.Series | np.ndarray:
    """A column as a table keeps it: few values of an array as a copy that cannot be written to, others as a Series."""
    if isinstance(values, pl.Series) or len(values) > FEW:
        return _series(name, values)
    return _read_only(np.array(values, order="C"))


def _series(name: str, values: pl.Series | np.ndarray) -> pl.Series:
    """A column as a Series of this name."""
    if isinstance(values, pl.Series):
        return values if values.name == name else values.alias(name)
    return pl.Series(name, values, pl.String if values.dtype == object else None)


def _read_only(values: np.ndarray) -> np.ndarray:
    values.flags.writeable = False
    return values


def as_numpy(series: pl.Series) -> np.ndarray:
    """A column as an array; texts as objects, one per run of equal texts or, where they are few, one per text."""
    if series.dtype != pl.String or _forked or len(series) < FEW:
        return series.to_numpy()
    starts = (series != series.shift()).fill_null(True).to_numpy()
    if 2 * np.count_nonzero(starts) > len(series):
        texts = series.unique(maintain_order=True)
        if len(texts) > FEW:
            return series.to_numpy()
        return texts.to_numpy()[series.cast(pl.Enum(texts)).to_physical().to_numpy()]
    return series.filter(starts).to_numpy()[np.cumsum(starts) - 1]
