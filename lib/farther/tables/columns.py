"""Tables of columns: NumPy arrays in memory, Parquet on disk, checked on the way in.

A table class names its columns once (`COLUMNS`); constructor, reader, writer, row selection and checks follow.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from farther.errors import DataError
from farther.tables.files import write_aside

Kind = Literal["string", "bool", "int16", "int32", "int64", "float32", "float64", "box", "vector"]

#: Rows in one Parquet row group: what a reader that streams holds in memory at once.
ROW_GROUP = 16_384


@dataclass(frozen=True)
class Column:
    """One column of a table.

    Args:
        name: Its name, in memory and in the file.
        kind: Type of a value; `box` is four float32, `vector` is a float row whose width the data decides.
        default: What an absent column is filled with; an optional column without a default stays None.
        optional: Whether it may be absent.
    """

    name: str
    kind: Kind
    optional: bool = False
    default: Any = None

    @property
    def width(self) -> int | None:
        """Values in a row: 4 for a box, None where the data decides, 0 for a single value."""
        return {"box": 4, "vector": None}.get(self.kind, 0)


class ColumnTable:
    """Base of the tables: equal-length columns, given as keyword arguments.

    Strings are object arrays of `str`; boxes are float32 arrays of shape (N, 4): xmin, ymin, xmax, ymax in pixels.

    Raises:
        DataError: a column is missing, unknown, of a wrong width or length, or holds values that cannot be; names
            row and field.
    """

    COLUMNS: ClassVar[tuple[Column, ...]] = ()

    def __init__(self, **columns: Any):
        self._fill(columns, source=None)

    def _fill(self, columns: dict[str, Any], source: str | Path | None) -> None:
        known = [c.name for c in self.COLUMNS]
        for name in columns:
            if name not in known:
                raise DataError(f"unknown column; known: {', '.join(known)}", file=source, field=name)
        self._length: int | None = None
        for column in self.COLUMNS:
            values = columns.get(column.name)
            if values is None and not column.optional:
                raise DataError("the column is missing", file=source, field=column.name)
            if values is not None:
                values = as_array(column, values, source)
                if self._length is None:
                    self._length = len(values)
                elif len(values) != self._length:
                    raise DataError(
                        f"{len(values)} rows, but {self._length} in '{known[0]}'",
                        file=source,
                        field=column.name,
                    )
            setattr(self, column.name, values)
        length = len(self)
        for column in self.COLUMNS:
            if getattr(self, column.name) is None and column.default is not None:
                setattr(self, column.name, as_array(column, np.full(length, column.default), source))
        self._check(source)

    def _check(self, source: str | Path | None) -> None:
        """Refuses values that cannot be. Subclasses add their own."""
        for column in self.COLUMNS:
            values = getattr(self, column.name)
            if values is not None and values.dtype.kind == "f":
                check_finite(column.name, values, source)
            if values is not None and column.kind == "box":
                check_boxes(column.name, values, source)

    def __len__(self) -> int:
        return self._length or 0

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} rows)"

    def columns(self) -> dict[str, Any]:
        """Columns by name, absent ones left out."""
        return {c.name: v for c in self.COLUMNS if (v := getattr(self, c.name)) is not None}

    def __getitem__(self, rows: Any) -> Self:
        """The rows that a boolean mask, an index array or a slice selects.

        Raises:
            TypeError: a single number: a table has rows, not items.
        """
        if isinstance(rows, (int, np.integer)):
            raise TypeError("select rows by mask, index array or slice, not by a single number")
        return self._with({name: values[rows] for name, values in self.columns().items()})

    def _with(self, columns: dict[str, Any]) -> Self:
        """A table like this one with other columns, already checked."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        for column in self.COLUMNS:
            setattr(other, column.name, columns.get(column.name))
        other._length = len(columns[self.COLUMNS[0].name])
        return other

    @classmethod
    def concatenate(cls, tables: Sequence[Self]) -> Self:
        """The rows of several tables, in order. A column that one of them lacks is left out.

        Raises:
            ValueError: there is no table.
        """
        if not tables:
            raise ValueError("nothing to concatenate")
        names = [n for n in tables[0].columns() if all(getattr(t, n) is not None for t in tables)]
        return tables[0]._with({n: np.concatenate([getattr(t, n) for t in tables]) for n in names})

    @classmethod
    def empty(cls) -> Self:
        """A table without rows."""
        return cls(**{c.name: np.zeros((0, c.width) if c.width else 0) for c in cls.COLUMNS if not c.optional})

    def to_arrow(self) -> pa.Table:
        """The same table as an Arrow table."""
        by_name = {c.name: c for c in self.COLUMNS}
        return pa.table({name: to_arrow(by_name[name], values) for name, values in self.columns().items()})

    @classmethod
    def from_arrow(cls, table: pa.Table, source: str | Path | None = None) -> Self:
        """Builds the table from an Arrow table; `source` is what messages call it.

        Raises:
            DataError: see the class.
        """
        made = cls.__new__(cls)
        made._fill(arrow_columns(cls.COLUMNS, table, source), source)
        return made

    def write(self, path: str | Path) -> None:
        """Writes a Parquet file (zstd), aside first, then renamed."""
        with write_aside(path) as aside:
            pq.write_table(self.to_arrow(), aside, compression="zstd", row_group_size=ROW_GROUP)

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Reads a Parquet file.

        Raises:
            DataError: the file is absent or no Parquet, or see the class.
        """
        return cls.from_arrow(read_parquet(path), path)


def read_parquet(path: str | Path) -> pa.Table:
    """A whole Parquet file.

    Raises:
        DataError: the file is absent or is not Parquet.
    """
    with open_parquet(path) as file:
        return file.read()


def open_parquet(path: str | Path) -> pq.ParquetFile:
    """Opens a Parquet file for reading by row groups.

    Raises:
        DataError: the file is absent or is not Parquet.
    """
    try:
        return pq.ParquetFile(path, read_dictionary=["image_id"])
    except KeyError:  # not a table of images
        return pq.ParquetFile(path)
    except FileNotFoundError:
        raise DataError("the file does not exist", file=path) from None
    except pa.ArrowInvalid as error:
        raise DataError(f"not a readable Parquet file: {error}", file=path) from None


def arrow_columns(columns: Iterable[Column], table: pa.Table, source: str | Path | None) -> dict[str, Any]:
    """NumPy columns of an Arrow table, those it has among `columns`.

    Raises:
        DataError: a value is null, or a row of a list column has another width than the others.
    """
    found = {}
    for column in columns:
        if column.name in table.column_names:
            found[column.name] = from_arrow(column, table.column(column.name), source)
    return found


def from_arrow(column: Column, values: pa.ChunkedArray, source: str | Path | None) -> np.ndarray:
    """One Arrow column as a NumPy array.

    Raises:
        DataError: see `arrow_columns`.
    """
    array = values.combine_chunks()
    if isinstance(array, pa.ChunkedArray):  # a dictionary array of several chunks
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    if array.null_count:
        row = int(np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))[0])
        raise DataError("the value is null", file=source, row=row, field=column.name)
    if pa.types.is_dictionary(array.type):
        words = array.dictionary.to_numpy(zero_copy_only=False)
        return words.astype(object)[array.indices.to_numpy(zero_copy_only=False)]
    if pa.types.is_fixed_size_list(array.type):
        return array.flatten().to_numpy(zero_copy_only=False).reshape(len(array), array.type.list_size)
    if pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
        lengths = array.value_lengths().to_numpy(zero_copy_only=False)
        odd = np.flatnonzero(lengths != lengths[:1])
        if len(odd):
            problem = f"{lengths[odd[0]]} values, but {lengths[0]} in row 0"
            raise DataError(problem, file=source, row=int(odd[0]), field=column.name)
        return (
            array.flatten().to_numpy(zero_copy_only=False).reshape(len(array), int(lengths[0]) if len(lengths) else 0)
        )
    return array.to_numpy(zero_copy_only=False)


def to_arrow(column: Column, values: np.ndarray) -> pa.Array:
    """One NumPy column as an Arrow array; rows of vectors become fixed-size lists."""
    if column.kind == "string":
        return pa.array(values, pa.string())
    if values.ndim == 2:
        flat = pa.array(np.ascontiguousarray(values).reshape(-1))
        return pa.FixedSizeListArray.from_arrays(flat, values.shape[1])
    return pa.array(values)


def as_array(column: Column, values: Any, source: str | Path | None = None) -> np.ndarray:
    """`values` as the array that a column of this kind holds; float16 and float32 vectors keep their type.

    Raises:
        DataError: the values have another type or width.
    """
    try:
        array = np.asarray(values, dtype=object if column.kind == "string" else None)
        if column.kind == "string":
            for row, value in enumerate(array):
                if not isinstance(value, str):
                    problem = f"expected text, found {value!r}"
                    raise DataError(problem, file=source, row=row, field=column.name)
            return array
        if column.kind == "vector":
            array = array if array.dtype in (np.float16, np.float32) else array.astype(np.float32)
        elif column.kind == "box":
            array = array.astype(np.float32, copy=False)
        else:
            array = _as_scalars(column, array, source)
    except (TypeError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"expected {column.kind} values: {error}", file=source, field=column.name) from None
    if column.width == 0 and array.ndim != 1:
        raise DataError(f"expected one value a row, found shape {array.shape}", file=source, field=column.name)
    if column.width != 0 and array.ndim != 2:
        raise DataError(
            f"expected a row of numbers for each row, found shape {array.shape}",
            file=source,
            field=column.name,
        )
    if column.width and array.shape[1] != column.width:
        raise DataError(f"expected {column.width} values a row, found {array.shape[1]}", file=source, field=column.name)
    return array


def _as_scalars(column: Column, array: np.ndarray, source: str | Path | None) -> np.ndarray:
    if array.dtype.kind not in "buif":
        raise DataError(f"expected {column.kind} values, found {array.dtype}", file=source, field=column.name)
    target = np.dtype(column.kind)
    cast = array.astype(target, copy=False)
    if target.kind in "iu" and array.dtype != target and array.size:
        wrong = np.flatnonzero(cast != array)
        if len(wrong):
            problem = f"expected {column.kind}, found {array[wrong[0]]!r}"
            raise DataError(problem, file=source, row=int(wrong[0]), field=column.name)
    return cast


def check_finite(name: str, values: np.ndarray, source: str | Path | None) -> None:
    """Refuses NaN and infinity.

    Raises:
        DataError: names the first row that holds one.
    """
    finite = np.isfinite(values)
    if not finite.all():
        row = int(np.flatnonzero(~(finite if values.ndim == 1 else finite.all(axis=1)))[0])
        raise DataError(f"not a finite number: {values[row]}", file=source, row=row, field=name)


def check_boxes(name: str, boxes: np.ndarray, source: str | Path | None) -> None:
    """Refuses boxes whose second corner lies before the first.

    Raises:
        DataError: names the first such row.
    """
    for low, high, axis in ((0, 2, "x"), (1, 3, "y")):
        wrong = np.flatnonzero(boxes[:, high] < boxes[:, low])
        if len(wrong):
            row = int(wrong[0])
            problem = f"{axis}max {boxes[row, high]:g} is below {axis}min {boxes[row, low]:g}"
            raise DataError(problem, file=source, row=row, field=name)
