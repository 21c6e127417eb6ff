"""Parquet and Arrow files.

Every page is written with a checksum, and rows are used only after Arrow has validated them.

Arrow's own reader is used, not Polars': a damaged file ends in an error there, never in the end of
the process.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import SEEK_END
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from polars.io.plugins import register_io_source

from farther.errors import DataError, FartherError, shorten
from farther.tables.files import regular_file

#: Rows per Parquet row group and per batch of a reader that streams.
ROW_GROUP = 16_384
#: Most bytes of the texts of a column in a row group.
TEXT_BYTES = 2**30
#: First bytes of Arrow's file format.
MAGIC = b"ARROW1"
#: Last bytes of Arrow's stream format.
STREAM_END = b"\xff\xff\xff\xff\0\0\0\0"


def write_parquet(frame: pl.DataFrame, path: str | Path) -> None:
    """Writes a Parquet file (zstd) in row groups of `ROW_GROUP`.

    The same rows give the same bytes.
    """
    dictionary_columns = []
    for name, dtype in frame.schema.items():
        if dtype == pl.String or dtype.is_integer():
            dictionary_columns.append(name)
    pq.write_table(
        frame.to_arrow(compat_level=pl.CompatLevel.oldest()),
        path,
        compression="zstd",
        compression_level=1,
        row_group_size=ROW_GROUP,
        use_dictionary=dictionary_columns,
        write_page_checksum=True,
    )


def read_parquet(path: str | Path, columns: Sequence[str] | None = None) -> pl.DataFrame:
    """All rows of a Parquet file, of all columns or of `columns`.

    Raises:
        DataError: the file is absent, is not Parquet, is damaged, or lacks a column.
    """
    with _opened(path) as file, parquet_errors(path):
        stored = file.schema_arrow.names
        names = stored if columns is None else list(columns)
        for name in names:
            if name not in stored:
                raise DataError("the column is missing", file=path, field=name)
        rows = file.metadata.num_rows
        # Threads take longer to start than a small file takes to read.
        table = file.read(_leaf_paths(file, names), use_threads=rows > ROW_GROUP)
        _check_count(path, table.num_rows, rows if names else 0)
        frame = _frame(table)
        if frame.columns == names:
            return frame
        return frame.select(names)


def read_batches(
    path: str | Path, columns: Sequence[str] | None = None, size: int = ROW_GROUP
) -> Iterator[pl.DataFrame]:
    """The rows of a Parquet file in frames, one of them in memory.

    A file without rows gives one empty frame.

    Args:
        path: The file.
        columns: Columns to read, as far as the file has them; None for all.
        size: Rows per frame.

    Raises:
        DataError: the file is absent, is not Parquet, or is damaged.
    """
    with _opened(path) as file:
        with parquet_errors(path):
            names = file.schema_arrow.names
            if columns is not None:
                names = [name for name in names if name in columns]
            if not names or not file.metadata.num_rows:
                yield _without_rows(file.schema_arrow).select(names)
                return
            batches = file.iter_batches(size, columns=_leaf_paths(file, names))
        count = 0
        while True:
            with parquet_errors(path):
                batch = next(batches, None)
                if batch is None:
                    break
                frame = _frame(batch).select(names)
            count += frame.height
            yield frame
        _check_count(path, count, file.metadata.num_rows)


def scan_parquet(paths: Sequence[str | Path]) -> pl.LazyFrame:
    """The rows of Parquet files of equal columns, as a lazy frame that reads only what is used.

    Raises:
        DataError: the first file cannot be read; `collected` raises it for the others.
    """
    with _opened(paths[0]) as file, parquet_errors(paths[0]):
        schema = _without_rows(file.schema_arrow).schema

    def frames(
        columns: list[str] | None, predicate: pl.Expr | None, limit: int | None, _: int | None
    ) -> Iterator[pl.DataFrame]:
        """The frames that Polars asks for; see `polars.io.plugins.register_io_source`."""
        selected = list(schema) if columns is None else columns
        names = selected
        if predicate is not None:
            names = list(dict.fromkeys([*selected, *predicate.meta.root_names()]))
        remaining = limit
        for path in paths:
            for frame in read_batches(path, names):
                _check_schema(frame, names, schema, path)
                if remaining is not None:
                    frame = frame.head(remaining)
                    remaining -= frame.height
                if predicate is not None:
                    frame = frame.filter(predicate)
                yield frame.select(selected)
                if remaining == 0:
                    return

    with parquet_errors(paths[0]):  # Polars' frames have types that its lazy frames refuse
        return register_io_source(frames, schema=schema)


def collected(scanned: pl.LazyFrame) -> pl.DataFrame:
    """The rows of a lazy frame that `scan_parquet` made.

    Raises:
        DataError: a file cannot be read.
    """
    try:
        return scanned.collect()
    except pl.exceptions.ComputeError as error:
        # Polars 1 has the error of a reader in its own one, as text.
        _, found, problem = str(error).partition(f"{DataError.__name__}: ")
        if not found:
            raise
        raise DataError(problem) from None


def _check_schema(
    frame: pl.DataFrame, names: Sequence[str], schema: pl.Schema, path: str | Path
) -> None:
    """Refuses a file whose columns differ from a schema."""
    for name in names:
        dtype = frame.schema.get(name)
        if dtype != schema[name]:
            problem = f"expected {schema[name]}, found {dtype or 'no such column'}"
            raise DataError(problem, file=path, field=name)


def count_rows(path: str | Path) -> int:
    """Number of rows by the footer of a Parquet file; errors as in `read_parquet`."""
    with _opened(path) as file:
        return file.metadata.num_rows


def parquet_schema(path: str | Path) -> pa.Schema:
    """Names, types and metadata of the columns of a Parquet file; errors as in `read_parquet`."""
    with _opened(path) as file:
        return file.schema_arrow


def arrow_rows(path: str | Path, size: int) -> Iterator[dict[str, Any]]:
    """The rows of a Parquet or Arrow file (stream or file format), a few in memory at once.

    Args:
        path: The file; a name that ends in `.parquet` is that of a Parquet file.
        size: Rows in memory; an Arrow file's batches are as large as they were written.

    Raises:
        DataError: the file is absent, is another kind of file, or is damaged.
    """
    is_parquet = Path(path).suffix.lower() == ".parquet"
    kind = "Parquet" if is_parquet else "Arrow"
    with _source(path, kind) as source:
        if is_parquet:
            batches = _parquet_batches(source, size)
        else:
            batches = _arrow_batches(source)
        while True:
            with parquet_errors(path, kind):
                batch = next(batches, None)
                if batch is None:
                    return
                batch.validate(full=True)
            for start in range(0, batch.num_rows, size):
                with parquet_errors(path, kind):
                    rows = batch.slice(start, size).to_pylist()
                yield from rows


def _parquet_batches(source: pa.NativeFile, size: int) -> Iterator[pa.RecordBatch]:
    file = pq.ParquetFile(source, page_checksum_verification=True, pre_buffer=False)
    yield from file.iter_batches(size)


def _arrow_batches(source: pa.NativeFile) -> Iterator[pa.RecordBatch]:
    """The batches of an Arrow file (which begins with `MAGIC`) or of an Arrow stream."""
    # Not mapped into memory: a buffer that lies behind the end of the file would end the process.
    if source.read(len(MAGIC)) == MAGIC:
        file = pa.ipc.open_file(source)
        for number in range(file.num_record_batches):
            yield file.get_batch(number)
        return
    # A stream that is cut off between two batches reads as a shorter one.
    if source.seek(-len(STREAM_END), SEEK_END) < 0 or source.read() != STREAM_END:
        raise ValueError("its end is missing")
    source.seek(0)
    yield from pa.ipc.open_stream(source)


@contextmanager
def _source(path: str | Path, kind: str = "Parquet") -> Iterator[pa.NativeFile]:
    regular_file(path)
    with parquet_errors(path, kind):
        source = pa.OSFile(str(path))
    with source:
        yield source


@contextmanager
def _opened(path: str | Path) -> Iterator[pq.ParquetFile]:
    """A Parquet file whose columns have different names."""
    with _source(path) as source:
        with parquet_errors(path):
            file = pq.ParquetFile(source, page_checksum_verification=True)
            names = file.schema_arrow.names  # the attribute converts the schema at each access
        if len(set(names)) < len(names):
            repeated = next(name for name in names if names.count(name) > 1)
            raise DataError("the column occurs twice", file=path, field=repeated)
        with parquet_errors(path):
            _check_texts(path, source, file)
        yield file


def _check_texts(path: str | Path, source: pa.NativeFile, file: pq.ParquetFile) -> None:
    """Refuses a row group in which the texts of a column have more than `TEXT_BYTES`.

    Equal texts may be stored once, so that a small file can have large texts.
    """
    names = [field.name for field in file.schema_arrow if _is_text(field.type)]
    for group in range(file.num_row_groups):
        # The size of each column is not read: where its metadata is damaged, Arrow ends the
        # process.
        metadata = file.metadata.row_group(group)
        if metadata.num_rows * metadata.total_byte_size <= TEXT_BYTES:
            continue
        for name, size in _sizes_of_texts(source, group, names).items():
            if size > TEXT_BYTES:
                problem = f"texts of {size:,} bytes; at most {TEXT_BYTES:,} are"
                raise DataError(problem, file=path, field=name)


def _is_text(dtype: pa.DataType) -> bool:
    return pa.types.is_string(dtype) or pa.types.is_large_string(dtype)


def _sizes_of_texts(source: pa.NativeFile, group: int, names: Sequence[str]) -> dict[str, int]:
    """Number of bytes of the decoded texts of each column in a row group."""
    file = pq.ParquetFile(source, read_dictionary=names, page_checksum_verification=True)
    table = file.read_row_group(group, names, use_threads=False)
    size_by_column = dict.fromkeys(names, 0)
    for name in names:
        for chunk in table.column(name).chunks:
            lengths = pc.binary_length(chunk.dictionary).take(chunk.indices)
            size_by_column[name] += pc.sum(lengths).as_py() or 0
    return size_by_column


def _leaf_paths(file: pq.ParquetFile, columns: Sequence[str]) -> list[str]:
    """Paths of the values of columns; a path belongs to the longest name that it begins with."""
    longest_first = sorted(file.schema_arrow.names, key=len, reverse=True)
    names = set(longest_first)
    schema = file.schema
    paths = []
    for number in range(len(schema)):
        path = schema.column(number).path
        column: str | None = path
        if path not in names:
            column = _column_of_path(path, longest_first)
        if column in columns:
            paths.append(path)
    return paths


def _column_of_path(path: str, names: Sequence[str]) -> str | None:
    """The first of several names of columns that a path of values belongs to."""
    for name in names:
        if path == name or path.startswith(f"{name}."):
            return name
    return None


def _without_rows(schema: pa.Schema) -> pl.DataFrame:
    """A frame without rows.

    Arrow's `empty_table` makes arrays from lists, for which it imports pandas if it is installed.
    """
    return _frame(pa.Table.from_batches([], schema))


def _frame(rows: pa.Table | pa.RecordBatch) -> pl.DataFrame:
    """The rows as a Polars frame, validated.

    Metadata of the columns is left out, because Polars does not validate it.
    """
    rows.validate(full=True)
    without_metadata = type(rows).from_arrays(rows.columns, names=rows.schema.names)
    frame = pl.from_arrow(without_metadata)
    assert isinstance(frame, pl.DataFrame)
    return frame


def _check_count(path: str | Path, count: int, expected: int) -> None:
    if count != expected:
        problem = f"{count:,} rows, but its footer says {expected:,}: not a complete Parquet file"
        raise DataError(problem, file=path)


@contextmanager
def parquet_errors(path: str | Path, kind: str = "Parquet") -> Iterator[None]:
    """Turns what Arrow or Polars raise while they read `path` into a DataError."""
    try:
        yield
    except FartherError:
        raise
    except (Exception, pl.exceptions.PanicException) as error:
        # Readers raise nearly any error about a damaged file.
        problem = f"not a readable {kind} file: {shorten(str(error))}; is it complete?"
        raise DataError(problem, file=path) from None
