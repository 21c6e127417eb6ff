"""Subsets that consist of several others."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from PIL import Image

from farther.datasets import create
from farther.datasets.ingest import ingest
from farther.errors import ParameterError


def coco(root: Path, subset: str, files: list[str], category: str, first_id: int = 1) -> None:
    """A COCO file, and its images of 20 × 10 pixels, each with one box."""
    images = []
    annotations = []
    for number, file in enumerate(files, start=first_id):
        path = root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((10, 20, 3), number + len(subset), np.uint8)).save(path)
        images.append({"id": number, "file_name": file})
        box = [1, 2, 8, number]
        annotations.append({"id": number, "image_id": number, "category_id": 1, "bbox": box})
    content = {
        "images": images,
        "annotations": annotations,
        "categories": [{"id": 1, "name": category}],
    }
    (root / f"{subset}.json").write_text(json.dumps(content))


def entry(root: Path, **combined: list[str]) -> dict:
    layout = {file.stem: (file.name, ".") for file in sorted(root.glob("*.json"))}
    return {"format": "coco", "root": root, "layout": layout, "combined": combined}


def test_a_combined_subset_has_the_images_boxes_and_classes_of_its_parts(tmp_path):
    coco(tmp_path, "beach", ["beach/1.png", "beach/2.png"], "dog")
    coco(tmp_path, "market", ["market/1.png"], "cat")
    coco(tmp_path, "street", ["street/1.png"], "car")
    reader = create(**entry(tmp_path, all=["beach", "market"]))
    assert reader.subsets() == ["all", "street"]
    ingest(reader, "d", tmp_path / "tables")
    objects = pl.read_parquet(tmp_path / "tables/all/objects.parquet")
    images = pl.read_parquet(tmp_path / "tables/all/images.parquet")
    assert images["file"].to_list() == ["beach/1.png", "beach/2.png", "market/1.png"]
    file_by_id = dict(zip(images["image_id"], images["file"], strict=True))
    found = {
        (file_by_id[row["image_id"]], row["category"], row["box"][3])
        for row in objects.iter_rows(named=True)
    }
    assert found == {
        ("beach/1.png", "dog", 3),
        ("beach/2.png", "dog", 4),
        ("market/1.png", "cat", 3),
    }
    assert objects["object_id"].n_unique() == 3


def test_ids_of_images_stay_unless_two_parts_have_the_same(tmp_path):
    coco(tmp_path, "a", ["a/1.png"], "dog", first_id=1)
    coco(tmp_path, "b", ["b/1.png"], "dog", first_id=2)
    annotations = create(**entry(tmp_path, all=["a", "b"])).read("all")
    assert annotations.images.image_id.tolist() == [f"{1:012d}", f"{2:012d}"]
    coco(tmp_path, "b", ["b/1.png"], "dog", first_id=1)
    annotations = create(**entry(tmp_path, all=["a", "b"])).read("all")
    assert annotations.images.image_id.tolist() == [f"a/{1:012d}", f"b/{1:012d}"]


def test_a_part_that_there_is_not_is_named_with_those_there_are(tmp_path):
    coco(tmp_path, "a", ["a/1.png"], "dog")
    with pytest.raises(ParameterError, match=r"no subset is called 'beach'\. Known: a"):
        create(**entry(tmp_path, all=["a", "beach"])).subsets()
