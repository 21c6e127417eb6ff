"""Writes COCO's instances: one JSON file."""

from __future__ import annotations

import json
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from farther.tools.demo.json_list import JsonList
from farther.tools.demo.records import Annotation, Record

_LICENCE = {"id": 1, "name": "CC BY-SA 4.0", "url": "https://creativecommons.org/licenses/by-sa/4.0/"}


def image_id(index: int) -> int:
    """COCO's number of an image."""
    return index + 1


def image_file(subset: str, index: int) -> str:
    """Path of an image inside the dataset."""
    return f"{subset}2017/{image_id(index):012d}.jpg"


@lru_cache(maxsize=1)
def category_ids() -> dict[str, int]:
    """COCO's own numbers of its 80 categories."""
    return {row["name"]: row["id"] for row in _categories()}


class CocoWriter:
    """Boxes are x, y, width, height; a crowd has `iscrowd` 1 and run lengths for a segmentation."""

    def __init__(self, folder: Path, subsets: tuple[str, ...]):
        (subset,) = subsets
        annotations = folder / "annotations"
        annotations.mkdir(parents=True)
        head = {
            "info": {"description": "farther demo world, playing COCO", "year": 2017},
            "licenses": [_LICENCE],
            "categories": _categories(),
        }
        self._images: list[dict[str, Any]] = []
        self._list = JsonList(annotations / f"instances_{subset}2017.json", json.dumps(head)[:-1] + ', "annotations": ')
        self._next_id = 1

    def add(self, record: Record) -> None:
        """Write one image's annotations."""
        number = image_id(record.index)
        name = Path(image_file(record.subset, record.index)).name
        self._images.append(
            {"id": number, "file_name": name, "width": record.width, "height": record.height, "license": 1}
        )
        for one in record.annotations:
            row = {"id": self._next_id, "image_id": number, "category_id": category_ids()[one.category]}
            self._list.append(json.dumps(row | _shape(one, record)))
            self._next_id += 1

    def close(self) -> None:
        """Write the images and finish."""
        self._list.close(', "images": ' + json.dumps(self._images) + "}")


def _shape(one: Annotation, record: Record) -> dict[str, Any]:
    xmin, ymin, xmax, ymax = one.box
    shape: dict[str, Any] = {
        "bbox": [xmin, ymin, xmax - xmin, ymax - ymin],
        "area": one.area,
        "iscrowd": int(one.is_group),
    }
    if one.is_group:
        shape["segmentation"] = {"size": [record.height, record.width], "counts": list(one.segments)}
    else:
        shape["segmentation"] = [list(one.segments)]
    return shape


def _categories() -> list[dict[str, Any]]:
    table = yaml.safe_load((files(__package__) / "coco_categories.yaml").read_text(encoding="utf-8"))
    return [
        {"id": number, "name": name, "supercategory": group}
        for group, members in table.items()
        for number, name in members.items()
    ]
