from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from farther.errors import DataError
from farther.tables import Header, Regions, RegionsFolder, RegionsWriter

HEADER = Header(classes=("dog", "cat"), weight=np.eye(2, 3), bias=np.zeros(2))
NAMED = Header(classes=("wolf", "puma"), weight=np.eye(2, 3), bias=np.zeros(2))


def rows(first, count, **optional):
    return Regions(
        header=HEADER,
        image_id=["a"] * count,
        region_id=np.arange(first, first + count),
        box=np.zeros((count, 4)),
        score=np.full(count, 0.5),
        label=np.zeros(count, int),
        logits=np.zeros((count, 2)),
        **optional,
    )


def with_features(first, count):
    return rows(first, count, features=np.zeros((count, 3)))


def names(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_nothing_stands_at_the_path_before_the_writer_is_closed(tmp_path):
    writer = RegionsWriter(tmp_path / "r", HEADER, tmp_path / "work")
    writer.write_shard(0, rows(0, 2))
    assert not (tmp_path / "r").exists()
    writer.close(1)
    assert names(tmp_path / "r") == ["last_layer.safetensors", "part-00000.parquet", "regions.json"]
    assert not (tmp_path / "work").exists()


def test_the_same_rows_are_the_same_bytes_whatever_they_were_made_from(tmp_path):
    for folder, key in (("r", "made from this"), ("other", "made from that")):
        writer = RegionsWriter(tmp_path / folder, HEADER, key=key)
        writer.write_shard(0, rows(0, 2))
        writer.close(1)
    assert names(tmp_path / "r") == names(tmp_path / "other")
    for name in names(tmp_path / "r"):
        assert (tmp_path / "r" / name).read_bytes() == (tmp_path / "other" / name).read_bytes()


def test_the_digest_of_rows_is_that_of_all_shards_and_not_of_the_names_of_classes(tmp_path):
    for folder, header, count in (("r", HEADER, 2), ("named", NAMED, 2), ("more", HEADER, 3)):
        writer = RegionsWriter(tmp_path / folder, header)
        writer.write_shard(0, rows(0, count))
        writer.close(1)
    digest = RegionsFolder(tmp_path / "r").rows_digest()
    assert RegionsFolder(tmp_path / "named").rows_digest() == digest
    assert RegionsFolder(tmp_path / "more").rows_digest() != digest


def test_a_second_writer_finds_the_shards_of_the_first_and_their_failures(tmp_path):
    failures = [{"image_id": "b", "reason": "torn"}]
    RegionsWriter(tmp_path / "r", HEADER, tmp_path / "work", "k").write_shard(
        1, rows(0, 2), 3, failures
    )
    second = RegionsWriter(tmp_path / "r", HEADER, tmp_path / "work", "k")
    assert [second.finished(shard) for shard in range(3)] == [False, True, False]
    assert second.failures(1) == failures
    second.write_shard(0, rows(2, 1))
    second.close(2)
    assert Regions.read(tmp_path / "r").region_id.tolist() == [2, 0, 1]


@pytest.mark.parametrize(
    ("header", "key"),
    [
        (replace(HEADER, classes=("dog", "bird")), "k"),
        (replace(HEADER, score_threshold=0.1), "k"),
        (replace(HEADER, weight=np.ones((2, 3))), "k"),
        (HEADER, "another"),
    ],
    ids=["classes", "threshold", "last layer", "key"],
)
def test_shards_that_were_made_from_something_else_are_thrown_away(tmp_path, header, key):
    RegionsWriter(tmp_path / "r", HEADER, tmp_path / "work", "k").write_shard(0, rows(0, 2))
    assert not RegionsWriter(tmp_path / "r", header, tmp_path / "work", key).finished(0)


def test_a_shard_counts_only_with_its_rows(tmp_path):
    RegionsWriter(tmp_path / "r", HEADER, tmp_path / "work").write_shard(0, rows(0, 2))
    (tmp_path / "work/rows/part-00000.parquet").unlink()
    assert not RegionsWriter(tmp_path / "r", HEADER, tmp_path / "work").finished(0)


def test_half_written_files_of_a_killed_run_do_not_get_into_the_folder(tmp_path):
    RegionsWriter(tmp_path / "r", HEADER, tmp_path / "work")
    for folder in ("work/rows/.work", "work/.work"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a1.lock").write_text("99")
        (tmp_path / folder / "a1.99.0.part-00000.parquet").write_bytes(b"half")
    writer = RegionsWriter(tmp_path / "r", HEADER, tmp_path / "work")
    writer.write_shard(0, rows(0, 1))
    writer.close(1)
    assert names(tmp_path / "r") == ["last_layer.safetensors", "part-00000.parquet", "regions.json"]


def test_a_missing_shard_is_named(tmp_path):
    writer = RegionsWriter(tmp_path / "r", HEADER)
    writer.write_shard(0, rows(0, 1))
    with pytest.raises(DataError, match="shard 1 of 2 was never written"):
        writer.close(2)


def test_shards_that_differ_in_their_columns_are_refused(tmp_path):
    writer = RegionsWriter(tmp_path / "r", HEADER)
    writer.write_shard(0, rows(0, 1))
    writer.write_shard(1, with_features(1, 1))
    with pytest.raises(DataError, match=r"part-00000\.parquet: has columns"):
        writer.close(2)


def test_a_shard_without_rows_need_not_know_the_columns(tmp_path):
    writer = RegionsWriter(tmp_path / "r", HEADER)
    writer.write_shard(0, Regions.empty(HEADER), images=4)
    writer.write_shard(1, with_features(0, 2), images=4)
    writer.close(2)
    folder = RegionsFolder(tmp_path / "r")
    assert folder.has("features")
    assert [len(batch) for batch in folder.batches()] == [2]
    assert Regions.read(tmp_path / "r").features.shape == (2, 3)
    assert folder.info["images"] == 8


def test_a_folder_without_rows_keeps_the_columns_that_one_of_its_shards_knew(tmp_path):
    writer = RegionsWriter(tmp_path / "r", HEADER)
    writer.write_shard(0, with_features(0, 0))
    writer.write_shard(1, Regions.empty(HEADER))
    writer.close(2)
    assert RegionsFolder(tmp_path / "r").has("features")


def test_a_transposed_last_layer_comes_back_as_it_was(tmp_path):
    weight = np.arange(6, dtype=np.float32).reshape(3, 2).T
    RegionsWriter(tmp_path / "r", replace(HEADER, weight=weight)).close(0)
    assert RegionsFolder(tmp_path / "r").weight.tolist() == [[0, 2, 4], [1, 3, 5]]


def test_a_last_layer_of_any_precision_is_kept_in_single(tmp_path):
    layer = {"weight": [[0.1, 2, 3], [4, 5, 6]], "bias": [0.1, -0.2]}
    for kind in (list, np.float16, np.float32, np.float64):
        given = (
            layer
            if kind is list
            else {name: np.array(values, kind) for name, values in layer.items()}
        )
        header = replace(HEADER, **given)
        RegionsWriter(tmp_path / "r", header).close(0)
        read = RegionsFolder(tmp_path / "r").header
        assert read.layer_digest() == header.layer_digest()
        for name, values in layer.items():
            assert getattr(read, name).dtype == getattr(header, name).dtype == np.float32
            np.testing.assert_allclose(getattr(read, name), values, rtol=1e-3)


def test_folders_above_the_path_are_made(tmp_path):
    writer = RegionsWriter(tmp_path / "a/b/r", HEADER, tmp_path / "work")
    writer.write_shard(0, rows(0, 2))
    writer.close(1)
    assert len(RegionsFolder(tmp_path / "a/b/r")) == 2


def test_work_on_another_file_system_is_refused_at_once(tmp_path, monkeypatch):
    usual = Path.stat

    def mounted_elsewhere(path, **options):
        return (
            SimpleNamespace(st_dev=-1)
            if path == tmp_path / "r-work" / "rows"
            else usual(path, **options)
        )

    monkeypatch.setattr(Path, "stat", mounted_elsewhere)
    with pytest.raises(
        DataError, match=r"r-work: not on the file system of .*/r; choose a work folder that is"
    ):
        RegionsWriter(tmp_path / "r", HEADER, tmp_path / "r-work")
