"""Splits as Parquet: columns, row groups and names of files."""

from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
from tests.publication.conftest import collect_publication, read_rows, shard_files

from farther.curation.sources import LabelledImages
from farther.publication import publish
from farther.tables import Objects


def test_parquet_has_the_published_columns(project, tmp_path):
    out = publish(collect_publication(project), tmp_path / "out", "parquet")
    (row,) = read_rows(out, "pool_near")
    assert list(row)[:5] == ["image", "file_name", "image_id", "height", "width"]
    assert list(row)[5:9] == ["dataset_origin", "distance_category", "objects", "categories"]
    assert (row["file_name"], row["image_id"]) == ("val2017/000000000004.jpg", "000000000004")
    assert (row["height"], row["width"], row["dataset_origin"], row["distance_category"]) == (
        48,
        64,
        "pool",
        "near",
    )
    flags = {"iscrowd": False, "is_difficult": False}
    assert row["objects"] == [
        {"id": 49, "area": 211.12, "bbox": [10.1, 2.2, 20.3, 10.4], "category_id": 2, **flags},
        {"id": 47, "area": 4.0, "bbox": [1.0, 1.0, 2.0, 2.0], "category_id": 1, **flags},
    ]
    assert row["categories"] == [
        {"id": 1, "name": "a|<b>", "supercategory": ""},
        {"id": 2, "name": "zebra", "supercategory": ""},
    ]
    assert (row["license"], row["source_url"], row["author"]) == (
        "CC BY 2.0",
        "https://example.org/photo",
        "",
    )


def test_columns_of_credits_are_there_only_where_a_source_gives_any(project, tmp_path):
    publication = collect_publication(project)
    silent = replace(
        publication, splits=tuple(replace(split, credits={}) for split in publication.splits)
    )
    out = publish(silent, tmp_path / "out", "parquet")
    assert len(read_rows(out, "pool_near")[0]) == 9


def test_a_large_split_comes_in_several_files_and_small_row_groups(project, tmp_path):
    publication = collect_publication(project)
    split = publication.splits[1]
    many = split.images[np.zeros(150, int)].with_columns(image_id=[f"{k:012d}" for k in range(150)])
    large = replace(split, source=LabelledImages(many, Objects.empty()))
    size = split.image_path(0).stat().st_size
    out = publish(
        replace(publication, splits=(large,)), tmp_path / "out", "parquet", shard_bytes=100 * size
    )
    files = shard_files(out, "pool_far")
    assert [path.name for path in files] == [
        "test-00000-of-00002.parquet",
        "test-00001-of-00002.parquet",
    ]
    groups = [pq.ParquetFile(path).metadata for path in files]
    assert [[one.row_group(k).num_rows for k in range(one.num_row_groups)] for one in groups] == [
        [64, 36],
        [50],
    ]
    assert [row["image_id"] for row in read_rows(out, "pool_far")] == many.image_id.tolist()


def test_a_split_of_the_id_dataset_is_published_when_it_is_named(project, tmp_path):
    out = publish(collect_publication(project, ["val"]), tmp_path / "out", "parquet")
    assert [path.name for path in shard_files(out, "val")] == ["validation-00000-of-00001.parquet"]
    assert read_rows(out, "val")[0]["distance_category"] == "ID"
