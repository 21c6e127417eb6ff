"""Parquet and Arrow files: every page is written with a checksum, and nothing is used before Arrow has validated it.

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
from farther.tables.arrow_ipc import check_sizes
from farther.tables.files import regular_file

#: Rows per Parquet row group and per batch of a reader that streams.
ROW_GROUP = 16_384
#: Most bytes of the texts of a column in a row group.
TEXT_BYTES = 2**30
#: First bytes of Arrow's file format, and last ones of its stream format.
MAGIC, STREAM_END = b"ARROW1", b"\xff\xff\xff\xff\0\0\0\0"


def write_parquet(frame: pl.DataFrame, path: str | Path) -> None:
    """Writes a Parquet file (zstd) in row groups of `ROW_GROUP`; the same rows give the same bytes."""
    repeated = [
        name for name, kind in frame.schema.items() if kind == pl.String or kind.is_integer()
    ]
    pq.write_table(
        frame.to_arrow(compat_level=pl.CompatLevel.oldest()),
        path,
        compression="zstd",
        compression_level=1,
        row_group_size=ROW_GROUP,
        use_dictionary=repeated,
        write_page_checksum=True,
    )


def read_parquet(path: str | Path, columns: Sequence[str] | None = None) -> pl.DataFrame:
    """All rows of a Parquet file, of all columns or of `columns`.

    Raises:
        DataError: the file is absent, is not Parquet, is damaged, or lacks a column.
    """
    with _opened(path) as file, parquet_errors(path):
        present = file.schema_arrow.names  # converted anew each time it is asked for
        names = present if columns is None else list(columns)
        if missing := [name for name in names if name not in present]:
            raise DataError("the column is missing", file=path, field=missing[0])
        table = file.read(_leaves(file, names))
        _check_count(path, table.num_rows, file.metadata.num_rows if names else 0)
        return _frame(table).select(names)


def read_batches(
    path: str | Path, columns: Sequence[str] | None = None, size: int = ROW_GROUP
) -> Iterator[pl.DataFrame]:
    """The rows of a Parquet file, `size` at a time, one of them in memory; a file without rows gives an empty frame.

    Args:
        path: The file.
        columns: Columns to read, those that the file has; None for all.
        size: Rows per frame.

    Raises:
        DataError: the file is absent, is not Parquet, or is damaged.
    """
    with _opened(path) as file:
        with parquet_errors(path):
            names = [name for name in file.schema_arrow.names if columns is None or name in columns]
            if not names or not file.metadata.num_rows:
                yield _frame(file.schema_arrow.empty_table()).select(names)
                return
            batches = file.iter_batches(size, columns=_leaves(file, names))
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
    """The rows of Parquet files of the same columns, as a lazy frame that reads the columns that are used.

    Raises:
        DataError: the first file cannot be read; `collect` raises it for the others.
    """
    schema = next(read_batches(paths[0])).schema

    def frames(
        columns: list[str] | None, wanted: pl.Expr | None, limit: int | None, _: int | None
    ) -> Iterator[pl.DataFrame]:
        names = list(schema) if columns is None else columns
        read = names if wanted is None else list(dict.fromkeys([*names, *wanted.meta.root_names()]))
        for path in paths:
            for frame in read_batches(path, read):
                if other := [name for name in read if frame.schema.get(name) != schema[name]]:
                    kind = frame.schema.get(other[0]) or "no such column"
                    raise DataError(
                        f"expected {schema[other[0]]}, found {kind}", file=path, field=other[0]
                    )
                found = frame if limit is None else frame.head(limit)
                yield (found if wanted is None else found.filter(wanted)).select(names)
                if limit is not None:
                    limit -= found.height
                    if not limit:
                        return

    with parquet_errors(paths[0]):  # Polars' frames have types that its lazy frames refuse
        return register_io_source(frames, schema=schema)


def count_rows(path: str | Path) -> int:
    """Number of rows that a Parquet file names; errors as in `read_parquet`."""
    with _opened(path) as file:
        return file.metadata.num_rows


def parquet_schema(path: str | Path) -> pa.Schema:
    """Names, types and metadata of the columns of a Parquet file; errors as in `read_parquet`."""
    with _opened(path) as file:
        return file.schema_arrow


def arrow_rows(path: str | Path, size: int) -> Iterator[dict[str, Any]]:
    """The rows of a Parquet file, or of an Arrow file (the stream or the file format), a few in memory at once.

    Args:
        path: The file; a name that ends in `.parquet` is one of Parquet.
        size: Rows in memory; an Arrow file's batches are as large as they were written.

    Raises:
        DataError: the file is absent, is another kind of file, or is damaged.
    """
    kind = "Parquet" if Path(path).suffix == ".parquet" else "Arrow"
    with _source(path, kind) as source:
        batches = _parquet_batches(source, size) if kind == "Parquet" else _arrow_batches(source)
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
    yield from pq.ParquetFile(
        source, page_checksum_verification=True, pre_buffer=False
    ).iter_batches(size)


def _arrow_batches(source: pa.NativeFile) -> Iterator[pa.RecordBatch]:
    """The batches of a stream, which in a file begins after `MAGIC` and padding, and is followed by a footer."""
    # Not mapped into memory: a buffer that lies behind the end of the file would end the process.
    is_file = source.read(len(MAGIC)) == MAGIC
    if is_file:
        pa.ipc.open_file(source)  # reads the footer, which is the end of a whole file
    elif source.seek(-len(STREAM_END), SEEK_END) < 0 or source.read() != STREAM_END:
        raise ValueError("its end is missing")
    start = 8 if is_file else 0
    source.seek(start)
    check_sizes(source)
    source.seek(start)
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
            names = file.schema_arrow.names
        if len(set(names)) < len(names):
            again = next(name for name in names if names.count(name) > 1)
            raise DataError("the column occurs twice", file=path, field=again)
        with parquet_errors(path):
            _check_texts(path, source, file)
        yield file


def _check_texts(path: str | Path, source: pa.NativeFile, file: pq.ParquetFile) -> None:
    """Refuses a row group in which the texts of a column have more than `TEXT_BYTES`; equal ones may be stored once."""
    kinds = pa.types.is_string, pa.types.is_large_string
    names = [
        field.name for field in file.schema_arrow if any(is_kind(field.type) for is_kind in kinds)
    ]
    for group in range(file.num_row_groups):
        # The size of each column is not asked for: where its metadata is damaged, Arrow ends the
        # process.
        stored = file.metadata.row_group(group)
        for name in names if stored.num_rows * stored.total_byte_size > TEXT_BYTES else ():
            compact = pq.ParquetFile(
                source, read_dictionary=[name], page_checksum_verification=True
            )
            parts = compact.read_row_group(group, [name]).column(0).chunks
            lengths = (pc.binary_length(part.dictionary).take(part.indices) for part in parts)
            decoded = sum(pc.sum(of).as_py() or 0 for of in lengths)
            if decoded > TEXT_BYTES:
                raise DataError(
                    f"texts of {decoded:,} bytes; at most {TEXT_BYTES:,} are", file=path, field=name
                )


def _paths(file: pq.ParquetFile) -> list[str]:
    return [file.schema.column(number).path for number in range(len(file.schema))]


def _leaves(file: pq.ParquetFile, wanted: Sequence[str]) -> list[str]:
    """Paths of the values of columns; a path belongs to the longest name that it begins with."""
    paths = _paths(file)
    names = sorted(file.schema_arrow.names, key=len, reverse=True)
    owners = {
        path: next((n for n in names if path == n or path.startswith(f"{n}.")), None)
        for path in paths
    }
    return [path for path in paths if owners[path] in wanted]


def _frame(rows: pa.Table | pa.RecordBatch) -> pl.DataFrame:
    """The rows as Polars' frame, validated; metadata of the columns is left out, which Polars does not validate."""
    rows.validate(full=True)
    found = pl.from_arrow(type(rows).from_arrays(rows.columns, names=rows.schema.names))
    assert isinstance(found, pl.DataFrame)
    return found


def _check_count(path: str | Path, found: int, expected: int) -> None:
    if found != expected:
        raise DataError(
            f"{found:,} rows, but its footer says {expected:,}: not a complete Parquet file",
            file=path,
        )


@contextmanager
def parquet_errors(path: str | Path, kind: str = "Parquet") -> Iterator[None]:
    """Turns what Arrow or Polars raise while they read `path` into a DataError."""
    try:
        yield
    except FartherError:
        raise
    except (
        Exception,
        pl.exceptions.PanicException,
    ) as error:  # a reader meets damage with nearly any error
        raise DataError(
            f"not a readable {kind} file: {shorten(str(error))}; is it complete?", file=path
        ) from None
