"""A split as Parquet with images and the columns of the published FindMeIfYouCan benchmark."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from farther.publication.contents import PublishedSplit
from farther.tables.files import inside

#: Approximate image bytes per file; the hub previews and loads files of this size well.
SHARD_BYTES = 400 * 2**20

#: Limits of a row group, which is in memory as a whole: rows, and approximate image bytes.
GROUP_ROWS = 64
GROUP_BYTES = 32 * 2**20

SCHEMA = pa.schema(
    {
        "image": pa.struct({"bytes": pa.binary(), "path": pa.string()}),
        "file_name": pa.string(),
        "image_id": pa.string(),
        "height": pa.int32(),
        "width": pa.int32(),
        "dataset_origin": pa.string(),
        "distance_category": pa.string(),
        "objects": pa.list_(
            pa.struct(
                {
                    "id": pa.int64(),
                    "area": pa.float64(),
                    "bbox": pa.list_(pa.float64()),
                    "category_id": pa.int64(),
                    "iscrowd": pa.bool_(),
                    "is_difficult": pa.bool_(),
                }
            )
        ),
        "categories": pa.list_(
            pa.struct({"id": pa.int64(), "name": pa.string(), "supercategory": pa.string()}),
        ),
    }
)

#: Further columns, where the dataset's files contain licences or authors.
CREDITS = ("license", "license_url", "author", "source_url")


def write_parquet(
    split: PublishedSplit, folder: Path, shard_bytes: int = SHARD_BYTES
) -> list[Path]:
    """Writes the files of a split, `<split>/test-00000-of-00001.parquet`.

    The columns are those of the published benchmark (`SCHEMA`). Objects have two further fields,
    `iscrowd` and `is_difficult`. A box is x, y, width, height; `category_id` counts from 0 and is a
    class label in the schema that `datasets` reads; `area` is that of the box, as the tables
    contain no outlines. One row group is in memory at once.

    Args:
        split: The split.
        folder: The publication's folder.
        shard_bytes: Approximate image bytes per file.

    Returns:
        The files.
    """
    schema = described(split)
    split_folder = inside(folder, split.name)
    split_folder.mkdir(parents=True, exist_ok=True)
    rows = _rows(split)
    sizes = _image_sizes(split)
    shards = _cut(sizes, shard_bytes)
    files = []
    for number, shard in enumerate(shards):
        file = split_folder / f"{split_name(split)}-{number:05d}-of-{len(shards):05d}.parquet"
        with pq.ParquetWriter(
            file, schema, use_dictionary=["dataset_origin", "distance_category"]
        ) as writer:
            for group in _cut(sizes[shard], GROUP_BYTES, GROUP_ROWS):
                first = shard.start + group.start
                records = _records(split, rows[shard][group], first)
                writer.write_table(pa.Table.from_pylist(records, schema))
        files.append(file)
    return files


def _image_sizes(split: PublishedSplit) -> np.ndarray:
    """Bytes of each image's file, 0 where it is absent: int64 of shape (number of images,)."""
    sizes = np.zeros(len(split.images), dtype=np.int64)
    for row in range(len(split.images)):
        path = split.image_path(row)
        if path.is_file():
            sizes[row] = path.stat().st_size
    return sizes


def _records(split: PublishedSplit, rows: pl.DataFrame, first: int) -> list[dict[str, Any]]:
    """Records of consecutive images with the images' content.

    Args:
        split: The split.
        rows: Their rows from `_rows`.
        first: Number of the first of them in the split.
    """
    records = []
    for number, row in enumerate(rows.iter_rows(named=True), start=first):
        image = {"bytes": split.image_bytes(number), "path": split.images.file[number]}
        records.append({"image": image, **row})
    return records


def split_name(split: PublishedSplit) -> str:
    """Name of the split for `datasets`.

    OOD splits are called `test`; ID splits keep their name, with `val` as `validation`.
    """
    if split.distance != "ID":
        return "test"
    if split.name == "val":
        return "validation"
    return re.sub(r"\W", "_", split.name)


def described(split: PublishedSplit) -> pa.Schema:
    """The schema of a split's files, with its features as `datasets` describes them."""
    schema = SCHEMA
    if any(split.credit(row) for row in range(len(split.images))):
        for name in CREDITS:
            schema = schema.append(pa.field(name, pa.string()))
    features = {field.name: _feature(split, field) for field in schema}
    return schema.with_metadata({"huggingface": json.dumps({"info": {"features": features}})})


def _feature(split: PublishedSplit, field: pa.Field) -> Any:
    """A column as `datasets` describes it in a file's schema."""
    if field.name == "image":
        return {"_type": "Image"}
    if field.name == "category_id":
        return {"names": list(split.categories.names), "_type": "ClassLabel"}
    if pa.types.is_list(field.type):
        return [_feature(split, field.type.value_field)]
    if pa.types.is_struct(field.type):
        return {inner.name: _feature(split, inner) for inner in field.type}
    dtype = str(field.type)
    if dtype == "double":
        dtype = "float64"
    return {"dtype": dtype, "_type": "Value"}


def _cut(sizes: np.ndarray, max_bytes: int, max_rows: int | None = None) -> list[slice]:
    """Cuts rows into consecutive parts.

    Args:
        sizes: Bytes of each row.
        max_bytes: A part ends with the row with which it reaches this number of bytes,
        max_rows: or this number of rows.
    """
    parts = []
    first = 0
    while first < len(sizes):
        bytes_so_far = np.cumsum(sizes[first:])
        last = first + int(np.searchsorted(bytes_so_far, max_bytes)) + 1
        last = min(last, len(sizes))
        if max_rows is not None:
            last = min(last, first + max_rows)
        parts.append(slice(first, last))
        first = last
    return parts


def _rows(split: PublishedSplit) -> pl.DataFrame:
    """The columns of a split but the images themselves: one row per image, in order."""
    rows = split.images.frame.select(
        pl.int_range(pl.len()).alias("row"),
        pl.col("file").alias("file_name"),
        "image_id",
        "height",
        "width",
        pl.col("dataset").alias("dataset_origin"),
        pl.lit(split.distance).alias("distance_category"),
        *_credit_columns(split),
    )
    objects = _object_rows(split)
    categories = _category_rows(split, objects)
    for name, frame in (("objects", objects), ("categories", categories)):
        records = pl.struct(pl.exclude("row")).alias(name)
        records_by_row = frame.group_by("row", maintain_order=True).agg(records)
        rows = rows.join(records_by_row, on="row", how="left", maintain_order="left")
    return rows.with_columns(pl.col("objects", "categories").fill_null([])).drop("row")


def _credit_columns(split: PublishedSplit) -> list[pl.Series]:
    credits = [split.credit(row) for row in range(len(split.images))]
    columns = []
    for name in CREDITS:
        values = [getattr(credit, name) for credit in credits]
        columns.append(pl.Series(name, values, dtype=pl.String))
    return columns


def _object_rows(split: PublishedSplit) -> pl.DataFrame:
    """One row per object: the row of its image, and the fields of column `objects`."""
    return pl.DataFrame(
        {
            "row": split.source.image_row,
            "id": split.objects.object_id,
            "area": pl.Series(split.areas, dtype=pl.Float64),
            "bbox": pl.Series(split.boxes.tolist(), dtype=pl.List(pl.Float64)),
            "category_id": split.category_number,
            "iscrowd": split.objects.is_crowd,
            "is_difficult": split.objects.is_difficult,
        }
    )


def _category_rows(split: PublishedSplit, objects: pl.DataFrame) -> pl.DataFrame:
    """One row per image and category in it: the image's row, and the fields of `categories`."""
    names = list(split.categories.names)
    categories = pl.DataFrame(
        {
            "id": range(len(names)),
            "name": names,
            "supercategory": [split.supercategory(name) for name in names],
        },
        schema={"id": pl.Int64, "name": pl.String, "supercategory": pl.String},
    )
    labelled = objects.select("row", id="category_id").unique().sort("row", "id")
    return labelled.join(categories, on="id", how="left")
