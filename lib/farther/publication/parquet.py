"""A split as Parquet with the columns of the published FindMeIfYouCan benchmark, images embedded."""

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
    """Writes the files of a split, `<split>/test-00000-of-00001.parquet`; returns their paths.

    The columns are those of the published benchmark (`SCHEMA`). Objects have two further fields,
    `iscrowd` and `is_difficult`. A box is x, y, width, height; `category_id` counts from 0 and is a
    class label in the schema that `datasets` reads; `area` is that of the box, as the tables
    contain no outlines. One row group is in memory at once.
    """
    schema = described(split)
    path = inside(folder, split.name)
    path.mkdir(parents=True, exist_ok=True)
    files = [split.image_path(row) for row in range(len(split.images))]
    sizes = np.array([file.stat().st_size if file.is_file() else 0 for file in files])
    shards, rows, written = _parts(sizes, shard_bytes), _rows(split), []
    for number, shard in enumerate(shards):
        written.append(path / f"{split_name(split)}-{number:05d}-of-{len(shards):05d}.parquet")
        with pq.ParquetWriter(
            written[-1], schema, use_dictionary=["dataset_origin", "distance_category"]
        ) as writer:
            for group in _parts(sizes[shard], GROUP_BYTES, GROUP_ROWS):
                records = [
                    {
                        "image": {
                            "bytes": split.image_bytes(image),
                            "path": split.images.file[image],
                        },
                        **row,
                    }
                    for image, row in enumerate(
                        rows[shard][group].iter_rows(named=True), shard.start + group.start
                    )
                ]
                writer.write_table(pa.Table.from_pylist(records, schema))
    return written


def split_name(split: PublishedSplit) -> str:
    """Name of the split for `datasets`: `test` for OOD splits; ID splits keep theirs, with `val` as `validation`."""
    if split.distance != "ID":
        return "test"
    return "validation" if split.name == "val" else re.sub(r"\W", "_", split.name)


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
    kind = str(field.type)
    return {"dtype": {"double": "float64"}.get(kind, kind), "_type": "Value"}


def _parts(sizes: np.ndarray, most: int, most_rows: int | None = None) -> list[slice]:
    """Consecutive rows, cut after the row with which a part reaches `most` bytes or `most_rows` rows."""
    parts, first = [], 0
    while first < len(sizes):
        reached = first + int(np.searchsorted(np.cumsum(sizes[first:]), most)) + 1
        last = min(reached, len(sizes), first + (most_rows or len(sizes)))
        parts.append(slice(first, last))
        first = last
    return parts


def _rows(split: PublishedSplit) -> pl.DataFrame:
    """The columns of a split but the images themselves: one row per image, in order."""
    images, objects = split.images, split.objects
    labelled = pl.DataFrame(
        {
            "row": split.source.image_row,
            "id": objects.object_id,
            "area": pl.Series(split.areas, dtype=pl.Float64),
            "bbox": pl.Series(split.boxes.tolist(), dtype=pl.List(pl.Float64)),
            "category_id": split.category_number,
            "iscrowd": objects.is_crowd,
            "is_difficult": objects.is_difficult,
        }
    )
    above = [split.supercategory(name) for name in split.categories.names]
    categories = pl.DataFrame(
        {"id": range(len(above)), "name": list(split.categories.names), "supercategory": above},
        schema={"id": pl.Int64, "name": pl.String, "supercategory": pl.String},
    )
    shown = (
        labelled.select("row", id="category_id")
        .unique()
        .sort("row", "id")
        .join(categories, on="id", how="left")
    )
    lists = [
        frame.group_by("row", maintain_order=True).agg(pl.struct(pl.exclude("row")).alias(name))
        for name, frame in (("objects", labelled), ("categories", shown))
    ]
    credits = [split.credit(row) for row in range(len(images))]
    rows = images.frame.select(
        pl.int_range(pl.len()).alias("row"),
        pl.col("file").alias("file_name"),
        "image_id",
        "height",
        "width",
        pl.col("dataset").alias("dataset_origin"),
        pl.lit(split.distance).alias("distance_category"),
        *(
            pl.Series(name, [getattr(credit, name) for credit in credits], dtype=pl.String)
            for name in CREDITS
        ),
    )
    for one in lists:
        rows = rows.join(one, on="row", how="left", maintain_order="left")
    return rows.with_columns(pl.col("objects", "categories").fill_null([])).drop("row")
