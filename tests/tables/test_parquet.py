"""Parquet and Arrow files, damaged ones included. See also `tests/disturbed`."""

import io
import resource
import sys
from contextlib import suppress
from decimal import Decimal
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from polars.testing import assert_frame_equal

from farther.errors import DataError
from farther.tables import Images
from farther.tables.parquet import (
    arrow_rows,
    collected,
    read_batches,
    read_parquet,
    scan_parquet,
    write_parquet,
)


def twice(file):
    column = pa.array(["a"])
    pq.write_table(pa.Table.from_arrays([column, column], names=["image_id", "image_id"]), file)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (twice, "field 'image_id': the column occurs twice"),
        (Path.mkdir, "not a file"),
        (lambda file: file.write_text("hello"), "not a readable Parquet file"),
        (lambda file: None, "the file does not exist"),
    ],
    ids=["a column twice", "a folder", "text", "nothing"],
)
def test_what_is_not_a_table_is_refused_by_name(tmp_path, make, problem):
    make(tmp_path / "images.parquet")
    with pytest.raises(DataError, match=rf"images\.parquet: {problem}"):
        Images.read(tmp_path / "images.parquet")


def arrow(make, compression="zstd", **columns):
    sink = io.BytesIO()
    table = pa.table(columns)
    with make(
        sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)
    ) as writer:
        writer.write_table(table)
    return sink.getvalue()


def peak_memory():
    """Largest number of bytes that this process had in memory."""
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@pytest.mark.parametrize("make", [pa.ipc.new_file, pa.ipc.new_stream])
@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_a_compressed_arrow_file_with_a_wrong_size_is_refused_without_filling_the_memory(
    tmp_path, make, compression
):
    file, numbers = tmp_path / "a.arrow", np.arange(1000)
    dictionary = pa.array(["a", "b"] * 500).dictionary_encode()
    content = arrow(make, compression, x=numbers, y=dictionary)
    file.write_bytes(content)
    assert [row["x"] for row in arrow_rows(file, 64)] == numbers.tolist()
    size = numbers.nbytes.to_bytes(8, "little")
    assert content.count(size) == 1
    memory = peak_memory()
    for wrong in (2**33, 2**36, 2**63 - 1, 8001, 7999, -7, -(2**63)):
        file.write_bytes(content.replace(size, wrong.to_bytes(8, "little", signed=True)))
        with pytest.raises(DataError, match=r"a\.arrow: not a readable Arrow file"):
            list(arrow_rows(file, 64))
    assert peak_memory() - memory < 2**30


@pytest.mark.parametrize("make", [pa.ipc.new_file, pa.ipc.new_stream])
@pytest.mark.parametrize("compression", ["zstd", "lz4", None])
def test_an_arrow_file_that_is_cut_off_is_refused(tmp_path, make, compression):
    file = tmp_path / "a.arrow"
    content = arrow(make, compression, x=np.arange(100), y=[f"text {n}" for n in range(100)])
    for end in range(0, len(content), 13):
        file.write_bytes(content[:end])
        with pytest.raises(DataError, match=r"a\.arrow: not a readable Arrow file"):
            list(arrow_rows(file, 64))


@pytest.mark.parametrize("make", [pa.ipc.new_file, pa.ipc.new_stream])
@pytest.mark.parametrize("compression", ["zstd", "lz4", None])
def test_an_arrow_file_with_a_flipped_bit_is_read_or_refused(tmp_path, make, compression):
    file = tmp_path / "a.arrow"
    content = arrow(make, compression, x=np.arange(100), y=[f"text {n}" for n in range(100)])
    rng = np.random.default_rng(0)
    for _ in range(100):
        damaged = bytearray(content)
        damaged[rng.integers(len(content))] ^= 1 << int(rng.integers(8))
        file.write_bytes(damaged)
        with suppress(DataError):
            list(arrow_rows(file, 64))


def test_texts_that_are_stored_once_and_would_fill_the_memory_are_refused_before_they_are_decoded(
    tmp_path, monkeypatch
):
    file, texts = tmp_path / "a.parquet", ["a", "é" * 500] * 5
    for kind in (pa.string(), pa.large_string()):
        pq.write_table(pa.table({"x": [{"y": 1}] * 10, "long": pa.array(texts, kind)}), file)
        monkeypatch.setattr("farther.tables.parquet.TEXT_BYTES", 5005)
        assert read_parquet(file)["long"].len() == 10
        monkeypatch.setattr("farther.tables.parquet.TEXT_BYTES", 5004)
        for read in (read_parquet, lambda path: list(read_batches(path, ["x"], 2))):
            with pytest.raises(
                DataError,
                match=r"a\.parquet: field 'long': texts of 5,005 bytes; at most 5,004 are",
            ):
                read(file)


def test_texts_whose_type_was_exchanged_for_that_of_numbers_are_refused(tmp_path):
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": ["a", "b"] * 5}), file)
    whole = file.read_bytes()
    footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    place = whole.index(b"\x15\x0c", footer)  # the schema's type, of bytes
    file.write_bytes(whole[: place + 1] + b"\x08" + whole[place + 2 :])  # float
    with pytest.raises(DataError, match=r"a\.parquet: not a readable Parquet file"):
        read_parquet(file)


@pytest.mark.parametrize("make", [pa.ipc.new_file, pa.ipc.new_stream])
@pytest.mark.parametrize("first", [2**40, -7, -1, 0])
def test_numbers_of_an_arrow_file_that_is_not_compressed_are_no_sizes(tmp_path, make, first):
    file, numbers = tmp_path / "a.arrow", [first, *range(20)]
    texts = pa.array(["a", None, "b"] * 7).dictionary_encode()
    file.write_bytes(arrow(make, None, x=numbers, y=texts, z=pa.array([numbers] * 21)))
    rows = list(arrow_rows(file, 8))
    assert [row["x"] for row in rows] == rows[3]["z"] == numbers
    assert [row["y"] for row in rows] == ["a", None, "b"] * 7


def test_an_arrow_stream_without_its_end_is_refused(tmp_path):
    file = tmp_path / "a.arrow"
    file.write_bytes(arrow(pa.ipc.new_stream, x=np.arange(1000))[:-8])
    with pytest.raises(DataError, match=r"a\.arrow: not a readable Arrow file"):
        list(arrow_rows(file, 64))


def test_a_column_of_a_type_that_polars_lacks_is_refused(tmp_path):
    for name, values in (("rows", [Decimal("1.5")]), ("none", [])):
        file = tmp_path / f"{name}.parquet"
        pq.write_table(pa.table({"x": pa.array(values, pa.decimal256(40, 3))}), file)
        with pytest.raises(DataError, match=rf"{name}\.parquet: not a readable Parquet file"):
            scan_parquet([file])


def test_the_first_rows_of_several_files_are_read_and_no_more(tmp_path: Path):
    whole, files = pl.DataFrame({"x": range(10), "y": [f"{n % 3}" for n in range(10)]}), []
    for first, count in ((0, 5), (5, 1), (6, 4)):
        files.append(tmp_path / f"{first}.parquet")
        write_parquet(whole[first : first + count], files[-1])
    is_even = pl.col("x") % 2 == 0
    for count in range(12):
        assert_frame_equal(scan_parquet(files).head(count).collect(), whole.head(count))
        assert_frame_equal(
            scan_parquet(files).filter(is_even).head(count).collect(),
            whole.filter(is_even).head(count),
        )
        some = scan_parquet(files).head(count).filter(is_even).select("y").collect()
        assert_frame_equal(some, whole.head(count).filter(is_even).select("y"))
    files[2].write_text("damaged")
    assert scan_parquet(files).head(6).collect().height == 6
    with pytest.raises(DataError, match=r"6\.parquet: not a readable Parquet file"):
        collected(scan_parquet(files).head(7))
