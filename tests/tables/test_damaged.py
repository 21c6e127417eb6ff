"""Damaged tables and headers are errors that name the file. See also `tests/fuzz`."""

import io
import json
import resource
import sys
from contextlib import suppress
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import save_file

from farther.errors import DataError
from farther.tables import Images, Regions
from farther.tables.files import digest
from farther.tables.parquet import arrow_rows, read_batches, read_parquet, scan_parquet
from farther.tables.regions import RegionsFolder


@pytest.fixture
def folder(tmp_path):
    rows = np.arange(40)
    regions = Regions(
        image_id=[f"image {row}" for row in rows],
        region_id=rows,
        box=np.tile([0, 0, 2, 2], (40, 1)),
        score=rows / 40,
        label=rows % 2,
        logits=np.ones((40, 2)),
        features=np.ones((40, 3)),
        classes=("a", "b"),
        weight=np.ones((2, 3)),
        bias=np.ones(2),
    )
    regions.write(tmp_path / "r")
    return tmp_path / "r"


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [
        ("classes", 1.5, "classes"),
        ("classes", ["a", 2], r"classes\.1"),
        ("shards", {}, "shards"),
        ("shards", [{"regions": 40}], r"shards\.0\.file"),
        ("shards", [{"file": "part-00000.parquet", "regions": -1}], r"shards\.0\.regions"),
        ("columns", None, "columns"),
        ("detector", [], "detector"),
        ("failures", [1], r"failures\.0"),
        ("background_index", "0", "background_index"),
        ("score_threshold", float("inf"), "score_threshold"),
        ("activation", ["softmax"], "activation"),
    ],
)
def test_a_header_field_of_another_type_is_named(folder, field, value, named):
    info = json.loads((folder / "regions.json").read_text())
    (folder / "regions.json").write_text(json.dumps({**info, field: value}))
    with pytest.raises(DataError, match=rf"regions\.json: field '{named}'"):
        RegionsFolder(folder)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"background_index": 2}, "field 'background_index': expected 0 … 1, found 2"),
        (
            {"background_index": 0, "unknown_columns": [0]},
            "field 'unknown_columns': expected different columns from 0 to 1",
        ),
        ({"classes": ["a", "a"]}, "field 'classes': the class 'a' is listed twice"),
        (
            {"classes": ["a", "b", "c"]},
            r"field 'weight': expected 3, one per class, found shape \(2, 3\)",
        ),
    ],
)
def test_fields_of_a_header_that_contradict_each_other_are_named_with_the_file(
    folder, changes, problem
):
    info = json.loads((folder / "regions.json").read_text())
    (folder / "regions.json").write_text(json.dumps({**info, **changes}))
    with pytest.raises(DataError, match=rf"regions\.json: {problem}"):
        RegionsFolder(folder)


@pytest.mark.parametrize(
    "weight", [np.ones((2, 3), np.int32), np.float32([[1, 2, 3], [4, np.nan, 6]])]
)
def test_a_last_layer_of_other_than_finite_numbers_is_refused_by_file_and_field(folder, weight):
    save_file({"weight": weight, "bias": np.ones(2, np.float32)}, folder / "last_layer.safetensors")
    with pytest.raises(
        DataError, match=r"last_layer\.safetensors: field 'weight': expected finite numbers"
    ):
        RegionsFolder(folder)


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


def test_a_digest_takes_the_name_of_a_file_that_is_not_utf_8():
    assert digest("a\udcff") != digest("a")
