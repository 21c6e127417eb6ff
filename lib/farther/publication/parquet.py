"""A split as Parquet with the columns of the published FindMeIfYouCan benchmark, images embedded."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from farther.publication.coco import area
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


def write_parquet(split: PublishedSplit, folder: Path, shard_bytes: int = SHARD_BYTES) -> list[Path]:
    """Writes the files of a split, `<split>/test-00000-of-00001.parquet`; returns their paths.

    The columns are those of the published benchmark (`SCHEMA`). Objects have two further fields, `iscrowd` and
    `is_difficult`. A box is x, y, width, height; `category_id` counts from 0 and is a class label in the schema that
    `datasets` reads; `area` is that of the box, as the tables contain no outlines. One row group is in memory at once.
    """
    schema = described(split)
    path = inside(folder, split.name)
    path.mkdir(parents=True, exist_ok=True)
    sizes = np.array([split.image_size(row) for row in range(len(split.images))])
    shards, rows, written = _parts(sizes, shard_bytes), list(split.by_image()), []
    for number, shard in enumerate(shards):
        written.append(path / f"{split_name(split)}-{number:05d}-of-{len(shards):05d}.parquet")
        with pq.ParquetWriter(written[-1], schema, use_dictionary=["dataset_origin", "distance_category"]) as writer:
            for group in _parts(sizes[shard], GROUP_BYTES, GROUP_ROWS):
                records = [_row(split, image, objects.tolist()) for image, objects in rows[shard][group]]
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
    if has_credits(split):
        for name in CREDITS:
            schema = schema.append(pa.field(name, pa.string()))
    features = {field.name: _feature(split, field) for field in schema}
    return schema.with_metadata({"huggingface": json.dumps({"info": {"features": features}})})


def has_credits(split: PublishedSplit) -> bool:
    """True if the licence or the author of any image is known."""
    return any(split.credit(row) for row in range(len(split.images)))


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
    return {"dtype": type_name(field.type), "_type": "Value"}


def type_name(kind: pa.DataType) -> str:
    """Name of a type for `datasets`."""
    return {"double": "float64"}.get(str(kind), str(kind))


def _parts(sizes: np.ndarray, most: int, most_rows: int | None = None) -> list[slice]:
    """Consecutive rows, cut after the row with which a part reaches `most` bytes or `most_rows` rows."""
    parts, first = [], 0
    while first < len(sizes):
        reached = first + int(np.searchsorted(np.cumsum(sizes[first:]), most)) + 1
        last = min(reached, len(sizes), first + (most_rows or len(sizes)))
        parts.append(slice(first, last))
        first = last
    return parts


def _row(split: PublishedSplit, image: int, objects: Sequence[int]) -> dict[str, Any]:
    images, credit = split.images, split.credit(image)
    return {
        "image": {"bytes": split.image_bytes(image), "path": images.file[image]},
        "file_name": images.file[image],
        "image_id": images.image_id[image],
        "height": images.height[image],
        "width": images.width[image],
        "dataset_origin": images.dataset[image],
        "distance_category": split.distance,
        "objects": [_object(split, row) for row in objects],
        "categories": _categories(split, objects),
        **{name: getattr(credit, name) for name in CREDITS},
    }


def _object(split: PublishedSplit, row: int) -> dict[str, Any]:
    box = split.boxes[row].tolist()
    return {
        "id": split.objects.object_id[row],
        "area": area(box),
        "bbox": box,
        "category_id": split.category_number[row],
        "iscrowd": bool(split.objects.is_crowd[row]),
        "is_difficult": bool(split.objects.is_difficult[row]),
    }


def _categories(split: PublishedSplit, objects: Sequence[int]) -> list[dict[str, Any]]:
    """The categories of an image's objects, in the dataset's order."""
    numbers = sorted({int(split.category_number[row]) for row in objects})
    names = [split.categories.names[number] for number in numbers]
    return [
        {"id": number, "name": name, "supercategory": split.supercategory(name)}
        for number, name in zip(numbers, names, strict=True)
    ]
