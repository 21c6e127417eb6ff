"""Claims about the regions table and its folder."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from polars.testing import assert_frame_equal
from tests.support.messages import OUTSIDE

from farther.errors import DataError
from farther.tables import Header, Regions, RegionsFolder, RegionsWriter, scan_regions
from farther.tables.parquet import write_parquet


def regions(count: int = 6, **changes) -> Regions:
    random = np.random.default_rng(0)
    columns = {
        "image_id": [f"image{i // 2}" for i in range(count)],
        "region_id": np.arange(count),
        "box": np.tile([1.0, 2.0, 5.5, 9.0], (count, 1)),
        "score": np.linspace(0.1, 0.9, count),
        "label": np.arange(count) % 2 + 1,
        "logits": random.normal(size=(count, 3)),
        "features": random.normal(size=(count, 4)).astype(np.float16),
        "classes": ("background", "cat", "dog"),
        "background_index": 0,
        "weight": random.normal(size=(3, 4)),
        "bias": np.zeros(3),
    }
    return Regions(**{**columns, **changes})


def assert_same(left: Regions, right: Regions) -> None:
    assert left.columns().keys() == right.columns().keys()
    for name, values in left.columns().items():
        assert values.dtype == right.columns()[name].dtype
        assert (values == right.columns()[name]).all()


def test_what_is_written_is_read(tmp_path: Path):
    table = regions()
    table.write(tmp_path / "regions")
    again = Regions.read(tmp_path / "regions")
    assert_same(table, again)
    assert again.classes == ("background", "cat", "dog")
    assert again.background_index == 0
    assert (again.weight == table.weight).all()


def test_columns_of_further_layers_are_written_and_read_by_name(tmp_path: Path):
    random = np.random.default_rng(1)
    layers = {
        name: random.normal(size=(6, 3)).astype(np.float32)
        for name in ("latent.layer2", "gram.layer2")
    }
    table = regions(**layers)
    table.write(tmp_path / "regions")
    assert_same(table, Regions.read(tmp_path / "regions"))
    (batch,) = RegionsFolder(tmp_path / "regions").batches(columns=["latent.layer2"])
    np.testing.assert_array_equal(batch.array("latent.layer2"), layers["latent.layer2"])
    assert not batch.has("gram.layer2")


def test_without_a_threshold_all_rows_are_read_whatever_their_scores(tmp_path: Path):
    table = regions(score=np.linspace(-2, 2, 6))
    table.write(tmp_path / "regions")
    assert_same(table, Regions.read(tmp_path / "regions"))
    assert_frame_equal(scan_regions(tmp_path / "regions").collect(), table.frame)


def test_variances_of_a_box_may_fall_from_one_corner_to_the_other(tmp_path: Path):
    variance = np.array([[4.0, 3.0, 2.0, 1.0]] * 6, np.float32)
    regions(box_variance=variance).write(tmp_path / "run")
    np.testing.assert_array_equal(Regions.read(tmp_path / "run").box_variance, variance)
    with pytest.raises(
        DataError, match="row 2: field 'box_variance': a variance is 0 or more, found -3"
    ):
        regions(box_variance=np.where(np.arange(6)[:, None] == 2, -variance + 1, variance))


def test_a_folder_explains_itself(tmp_path: Path):
    header = Header(
        classes=("cat", "dog"), activation="sigmoid", score_threshold=0.05, detector={"name": "toy"}
    )
    writer = RegionsWriter(tmp_path / "regions", header)
    writer.write_shard(
        0, Regions.empty(header), images=3, failures=[{"image_id": "a", "reason": "truncated"}]
    )
    writer.close(shards=1)
    told = json.loads((tmp_path / "regions" / "regions.json").read_text())
    assert told["classes"] == ["cat", "dog"]
    assert told["activation"] == "sigmoid"
    assert told["score_threshold"] == 0.05
    assert told["detector"] == {"name": "toy"}
    assert told["images"] == 3
    assert told["failures"] == [{"image_id": "a", "reason": "truncated"}]


def test_the_same_rows_give_the_same_bytes(tmp_path: Path):
    for name in ("one", "two"):
        regions().write(tmp_path / name)
    for file in (tmp_path / "one").iterdir():
        assert file.read_bytes() == (tmp_path / "two" / file.name).read_bytes()


@pytest.mark.parametrize(
    ("change", "row", "field"),
    [
        ({"box": [[0, 0, 1, 1], [5, 0, 4, 1]]}, 1, "box"),
        ({"box": [[0, 0, 1, 1], [0, 3, 1, 2]]}, 1, "box"),
        ({"box": [[0, 0, np.nan, 1], [0, 0, 1, 1]]}, 0, "box"),
        ({"box": [[0, 0, 1, np.inf], [0, 0, 1, 1]]}, 0, "box"),
        ({"box": [[0, 0, 1], [0, 0, 1]]}, None, "box"),
        ({"logits": [[1, 2], [1, 2]]}, 0, "logits"),
        ({"logits": [[1, 2, 3], [1, 2, np.nan]]}, 1, "logits"),
        ({"label": [1, 3]}, 1, "label"),
        ({"label": [0, 1]}, 0, "label"),
        ({"region_id": [0, 0.5]}, 1, "region_id"),
        ({"region_id": None}, None, "region_id"),
        ({"image_id": ["a", 3]}, 1, "image_id"),
        ({"features": np.zeros((2, 5))}, None, "features"),
        ({"score": [0.5]}, None, "score"),
        ({"scores": [0.5, 0.5]}, None, "scores"),
    ],
)
def test_a_wrong_column_is_refused_by_row_and_field(change: dict, row: int | None, field: str):
    with pytest.raises(DataError) as error:
        regions(2, **change)
    assert (error.value.row, error.value.field) == (row, field)


def damage(folder: Path, name: str, values: pa.Array) -> Path:
    """Replaces one column of the second of two shards."""
    table = regions(4)
    writer = RegionsWriter(folder, table.header)
    for shard in range(2):
        writer.write_shard(shard, table)
    writer.close(shards=2)
    file = folder / "part-00001.parquet"
    whole = pq.read_table(file)
    place = whole.column_names.index(name)
    pq.write_table(whole.remove_column(place).add_column(place, name, values), file)
    return file


@pytest.mark.parametrize(
    ("name", "values", "row"),
    [
        ("box", pa.array([[0.0, 0, 1, 1]] * 3 + [[2.0, 0, 1, 1]], pa.list_(pa.float32(), 4)), 3),
        ("box", pa.array([[0.0, 0, 1, 1]] * 2 + [[2.0, 0, 1]] * 2, pa.list_(pa.float32())), 2),
        ("logits", pa.array([[0.0, 0.0]] * 4, pa.list_(pa.float32(), 2)), 0),
        ("score", pa.array([0.1, None, 0.2, 0.3], pa.float32()), 1),
    ],
)
def test_a_damaged_shard_is_named_with_row_and_field(
    tmp_path: Path, name: str, values: pa.Array, row: int
):
    file = damage(tmp_path / "regions", name, values)
    with pytest.raises(DataError) as error:
        Regions.read(tmp_path / "regions")
    assert (error.value.file, error.value.row, error.value.field) == (str(file), row, name)


def test_a_missing_column_is_named(tmp_path: Path):
    table = regions(4)
    table.write(tmp_path / "regions")
    file = tmp_path / "regions" / "part-00000.parquet"
    pq.write_table(pq.read_table(file).drop_columns(["logits"]), file)
    with pytest.raises(DataError, match=r"part-00000\.parquet.*'logits'.*missing"):
        Regions.read(tmp_path / "regions")


def test_a_row_is_counted_within_its_file_not_its_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("farther.tables.regions.ROW_GROUP", 3)
    table = regions(8)
    table.write(tmp_path / "regions")
    file = tmp_path / "regions" / "part-00000.parquet"
    whole = pq.read_table(file)
    scores = pa.array([0.5] * 7 + [None], pa.float32())
    pq.write_table(
        whole.set_column(whole.column_names.index("score"), "score", scores), file, row_group_size=3
    )
    with pytest.raises(DataError) as error:
        list(RegionsFolder(tmp_path / "regions").batches())
    assert error.value.row == 7


@pytest.mark.parametrize(
    ("header", "field"),
    [
        ({"classes": ("cat", "cat")}, "classes"),
        ({"classes": ("cat",), "background_index": 1}, "background_index"),
        ({"classes": ("cat",), "activation": "tanh"}, "activation"),
        ({"classes": ("cat",), "weight": np.zeros((2, 3)), "bias": np.zeros(2)}, "weight"),
        ({"classes": ("cat",), "weight": np.zeros((1, 3)), "bias": np.zeros(2)}, "bias"),
        ({"classes": ("cat",), "weight": np.zeros((1, 3))}, "bias"),
        ({"classes": ("cat", "none"), "background_index": 1, "whole_images": True}, "whole_images"),
        ({"classes": ("cat",), "score_threshold": 0.05, "whole_images": True}, "whole_images"),
    ],
)
def test_a_header_that_contradicts_itself_is_refused(header: dict, field: str):
    with pytest.raises(DataError) as error:
        Header(**header)
    assert error.value.field == field


def test_a_header_and_its_fields_are_not_given_side_by_side():
    with pytest.raises(
        DataError,
        match="field 'header': given beside a header: classes, background_index, weight, bias",
    ):
        regions(header=Header(classes=("background", "cat", "dog"), background_index=0))


def test_a_folder_streams_what_the_whole_table_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("farther.tables.regions.ROW_GROUP", 2)
    table = regions(7)
    table.write(tmp_path / "regions")
    folder = RegionsFolder(tmp_path / "regions")
    batches = list(folder.batches())
    assert [len(batch) for batch in batches] == [2, 2, 2, 1]
    assert_same(Regions.concatenate(batches), table)
    assert len(folder) == 7
    kept = Regions.concatenate(list(folder.above(0.5).batches()))
    assert_same(kept, table[table.score >= 0.5])


@pytest.mark.parametrize("least", [0.0, 0.1, 0.42, 0.9, 1.0])
def test_batches_of_a_table_and_of_a_folder_and_its_lazy_frame_have_the_same_rows(
    tmp_path, monkeypatch, least
):
    monkeypatch.setattr("farther.tables.regions.ROW_GROUP", 4)
    table = regions(11)
    table.write(tmp_path / "regions")
    folder = RegionsFolder(tmp_path / "regions").above(least)
    expected = [row for row, score in enumerate(table.score) if score >= np.float32(least)]
    for batches in (table.above(least).batches(), folder.batches()):
        assert [row for batch in batches for row in batch.region_id] == expected
    assert_frame_equal(folder.scan().collect(), table.frame[expected])
    assert_frame_equal(
        scan_regions(tmp_path / "regions", least, ["score"]).collect(),
        table.frame[expected, ["score"]],
    )


def test_a_folder_without_rows_is_scanned_as_an_empty_table(tmp_path: Path):
    writer = RegionsWriter(tmp_path / "regions", Header(classes=("cat", "dog")))
    writer.write_shard(0, Regions.empty(writer.header))
    writer.close(shards=1)
    found = scan_regions(tmp_path / "regions", columns=["image_id", "box", "score"]).collect()
    assert found.shape == (0, 3)
    assert found.schema == regions().frame.select("image_id", "box", "score").schema
    assert [len(batch) for batch in RegionsFolder(tmp_path / "regions").batches()] == [0]


def test_features_of_half_and_of_single_precision_are_joined_in_single(tmp_path: Path):
    half, single = (
        regions(3),
        regions(300, features=np.linspace(0, 1, 1200).reshape(300, 4).astype(np.float32)),
    )
    for tables in ((half, single), (single, half), (regions(300), single), (half, half)):
        joined = Regions.concatenate(tables)
        np.testing.assert_array_equal(
            joined.features, np.concatenate([table.features for table in tables])
        )
        assert joined.region_id.tolist() == [row for table in tables for row in table.region_id]
    assert (joined.features.dtype, Regions.concatenate([half, single]).features.dtype) == (
        np.float16,
        np.float32,
    )


def test_only_the_columns_asked_for_are_read(tmp_path: Path):
    regions().write(tmp_path / "regions")
    (batch,) = RegionsFolder(tmp_path / "regions").batches(columns=[])
    assert batch.features is None
    assert batch.logits is not None


def test_a_shard_name_that_leaves_the_folder_is_refused(tmp_path: Path):
    regions().write(tmp_path / "regions")
    file = tmp_path / "regions" / "regions.json"
    told = json.loads(file.read_text())
    told["shards"][0]["file"] = "../elsewhere.parquet"
    file.write_text(json.dumps(told))
    with pytest.raises(DataError, match=OUTSIDE):
        RegionsFolder(tmp_path / "regions")


def test_whole_images_have_one_region_each(tmp_path: Path):
    whole = {"background_index": None, "label": [0, 1], "whole_images": True}
    regions(2, image_id=["a", "b"], **whole).write(tmp_path / "run")
    assert Regions.read(tmp_path / "run").header.whole_images
    with pytest.raises(DataError, match="row 1: field 'image_id': a second region of image 'a'"):
        regions(2, image_id=["a", "a"], **whole)


def test_a_folder_written_before_there_were_whole_images_is_read(tmp_path: Path):
    regions().write(tmp_path / "run")
    file = tmp_path / "run" / "regions.json"
    told = json.loads(file.read_text())
    del told["whole_images"]
    file.write_text(json.dumps(told))
    assert not RegionsFolder(tmp_path / "run").header.whole_images


def test_a_column_that_every_table_has_and_a_shard_lacks_is_named(tmp_path: Path):
    table = regions()
    table.write(tmp_path / "regions")
    (shard,) = (tmp_path / "regions").glob("*.parquet")
    write_parquet(table.frame.drop("score"), shard)
    with pytest.raises(
        DataError, match=r"part-00000\.parquet: field 'score': the column is missing"
    ):
        scan_regions(tmp_path / "regions", min_score=0.5)
