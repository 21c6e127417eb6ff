"""Writes OpenImages: a table of boxes, the names of the categories, and their hierarchy."""

from __future__ import annotations

import csv
import json
from functools import lru_cache
from hashlib import blake2b
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from farther.tools.demo.records import Record

BOX_FIELDS = (
    "ImageID",
    "Source",
    "LabelName",
    "Confidence",
    "XMin",
    "XMax",
    "YMin",
    "YMax",
    "IsOccluded",
    "IsTruncated",
    "IsGroupOf",
    "IsDepiction",
    "IsInside",
)
_ROOT = "Entity"


def image_id(subset: str, index: int) -> str:
    """Sixteen hexadecimal digits."""
    return blake2b(f"openimages/{subset}/{index}".encode(), digest_size=8).hexdigest()


def image_file(subset: str, index: int) -> str:
    """Path of an image inside the dataset."""
    return f"{subset}/{image_id(subset, index)}.jpg"


class OpenImagesWriter:
    """Box edges are fractions of the image's width and height."""

    def __init__(self, folder: Path, subsets: tuple[str, ...]):
        (subset,) = subsets
        folder.mkdir(parents=True, exist_ok=True)
        table = _table()
        with (folder / "class-descriptions-boxable.csv").open("w", encoding="utf-8", newline="") as file:
            names = sorted((label, name) for name, label in table["ids"].items() if name != _ROOT)
            csv.writer(file, lineterminator="\n").writerows(names)
        hierarchy = _node(_ROOT, table["hierarchy"], table)
        (folder / "bbox_labels_600_hierarchy.json").write_text(json.dumps(hierarchy, indent=1) + "\n", encoding="utf-8")
        self._file = (folder / f"{subset}-annotations-bbox.csv").open("w", encoding="utf-8", newline="")
        self._rows = csv.writer(self._file, lineterminator="\n")
        self._rows.writerow(BOX_FIELDS)

    def add(self, record: Record) -> None:
        """Write one image's boxes."""
        for one in record.annotations:
            xmin, ymin, xmax, ymax = one.box
            edges = (xmin / record.width, xmax / record.width, ymin / record.height, ymax / record.height)
            self._rows.writerow(
                (
                    image_id(record.subset, record.index),
                    "xclick",
                    _table()["ids"][one.category],
                    1,
                    *(f"{edge:.6f}" for edge in edges),
                    int(one.occluded),
                    int(one.truncated),
                    int(one.is_group),
                    0,
                    0,
                )
            )

    def close(self) -> None:
        """Finish the table."""
        self._file.close()


@lru_cache(maxsize=1)
def _table() -> dict[str, Any]:
    return yaml.safe_load((files(__package__) / "openimages_categories.yaml").read_text(encoding="utf-8"))


def _node(name: str, children: dict[str, Any], table: dict[str, Any]) -> dict[str, Any]:
    """A category, what is more special than it (`Subcategory`), and what it is made of (`Part`)."""
    node: dict[str, Any] = {"LabelName": table["ids"][name]}
    if children:
        node["Subcategory"] = [_node(child, below, table) for child, below in children.items()]
    if name in table["parts"]:
        node["Part"] = [_node(part, {}, table) for part in table["parts"][name]]
    return node
