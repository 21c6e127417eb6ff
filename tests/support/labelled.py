"""Labelled images and their embeddings, made from what each image shows."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from farther.curation import LabelledImages
from farther.similarity import Embeddings
from farther.tables import Images, Objects
from farther.tables.documents import write_json


def labelled(dataset: str, shown: Mapping[str, Sequence[str]], **columns: list) -> LabelledImages:
    """Images of 9 × 9 pixels with one object per shown category; `Kite*` is a crowd of kites.

    Args:
        dataset: Their dataset.
        shown: Image → categories.
        columns: Other columns of the table of images.
    """
    image_ids = list(shown)
    images = {
        "dataset": [dataset] * len(image_ids),
        "file": image_ids,
        "width": [9] * len(image_ids),
        "height": [9] * len(image_ids),
        "digest": image_ids,
        **columns,
    }
    image_of_object = []
    category_of_object = []
    is_crowd = []
    for image, categories in shown.items():
        for category in categories:
            image_of_object.append(image)
            category_of_object.append(category.removesuffix("*"))
            is_crowd.append(category.endswith("*"))
    objects = Objects(
        image_id=image_of_object,
        object_id=np.arange(len(image_of_object)),
        box=np.tile([0, 0, 5, 5], (len(image_of_object), 1)),
        category=category_of_object,
        is_crowd=is_crowd,
    )
    return LabelledImages(Images(image_id=image_ids, **images), objects)


def write_tables(folder: Path, source: LabelledImages) -> None:
    """Writes a subset as `ingest` and `curate` do."""
    source.images.write(folder / "images.parquet")
    source.objects.write(folder / "objects.parquet")


def on_circle(degrees: Sequence[float]) -> np.ndarray:
    """Vectors of length 1 that point in these directions, (N, 2)."""
    turns = np.deg2rad(np.asarray(degrees, float))
    return np.stack([np.cos(turns), np.sin(turns)], axis=1).astype(np.float32)


def write_embeddings(
    folder: Path, ids: Sequence[str], vectors: np.ndarray, model: str = "m"
) -> None:
    """Writes the embeddings of a subset, one shard."""
    Embeddings(image_id=list(ids), embedding=vectors).write(folder / "part-00000.parquet")
    header = {"format": "farther.embeddings", "version": 1, "key": "k", "encoder": {"model": model}}
    shards = {"images": len(ids), "failures": [], "shards": ["part-00000.parquet"]}
    write_json(folder / "embeddings.json", header | shards)
