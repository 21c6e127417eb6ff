"""Annotation files of the demo datasets, each in the format of its original."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from operator import attrgetter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from farther.datasets.coco_writer import write_coco
from farther_demo.drawings import demo_table
from farther_demo.placing import SceneObject
from farther_demo.recipes import CROPS, crop_class
from farther_demo.scene import Record

#: Year in the names of VOC's images of each subset.
_VOC_YEAR = {"train": 2007, "val": 2008, "test": 2012}

#: Visible fraction below which an object is `difficult` in VOC.
_DIFFICULT = 0.45

_COCO_LICENCE = {
    "id": 1,
    "name": "CC BY-SA 4.0",
    "url": "https://creativecommons.org/licenses/by-sa/4.0/",
}

#: Columns of OpenImages' table of boxes.
BOX_FIELDS = (
    "ImageID", "Source", "LabelName", "Confidence", "XMin", "XMax", "YMin", "YMax",
    "IsOccluded", "IsTruncated", "IsGroupOf", "IsDepiction", "IsInside",
)  # fmt: skip

#: Name of the root of OpenImages' hierarchy.
_ROOT = "Entity"


class Writer:
    """Writes the annotation files of a dataset, one scene at a time.

    This base class writes none: it is for image labels by folder.

    Args:
        folder: The dataset's folder.
        subsets: Names of its subsets.
    """

    def __init__(self, folder: Path, subsets: Sequence[str]):
        """Subclasses create their files here."""

    def add(self, record: Record) -> None:
        """Writes the annotations of a scene."""

    def close(self) -> None:
        """Completes the files."""


class VocWriter(Writer):
    """PASCAL VOC: one XML file per image and one list of images per subset.

    Boxes are 1-based pixels, both ends inclusive; an object that is less than 45% visible is
    `difficult`.
    """

    def __init__(self, folder: Path, subsets: Sequence[str]):
        self._annotations = folder / "VOC2012" / "Annotations"
        self._annotations.mkdir(parents=True)
        lists = folder / "VOC2012" / "ImageSets" / "Main"
        lists.mkdir(parents=True)
        self._lists = {}
        for subset in subsets:
            self._lists[subset] = (lists / f"{subset}.txt").open("w", encoding="utf-8")

    def add(self, record: Record) -> None:
        """Writes the annotations of a scene."""
        name = Path(voc_file(record.subset, record.index)).stem
        root = ElementTree.Element("annotation")
        _texts(root, folder="VOC2012", filename=f"{name}.jpg")
        source = ElementTree.SubElement(root, "source")
        _texts(source, database="farther demo world", annotation="exact", image="OpenMoji")
        size = ElementTree.SubElement(root, "size")
        _texts(size, width=record.width, height=record.height, depth=3)
        _texts(root, segmented=0)
        for annotated in record.annotations:
            element = ElementTree.SubElement(root, "object")
            _texts(
                element,
                name=annotated.category,
                pose="Unspecified",
                truncated=int(annotated.truncated),
                difficult=int(annotated.visible < _DIFFICULT),
            )
            xmin, ymin, xmax, ymax = annotated.box
            box = ElementTree.SubElement(element, "bndbox")
            _texts(box, xmin=xmin + 1, ymin=ymin + 1, xmax=xmax, ymax=ymax)
        ElementTree.indent(root)
        text = ElementTree.tostring(root, encoding="unicode")
        (self._annotations / f"{name}.xml").write_text(text + "\n", encoding="utf-8")
        self._lists[record.subset].write(f"{name}\n")

    def close(self) -> None:
        """Completes the lists."""
        for file in self._lists.values():
            file.close()


class BddWriter(Writer):
    """BDD100K's detection labels: one Scalabel list per subset.

    A box is its first and last pixel: its width is x2 - x1 + 1. `labels` is null where there are
    none.
    """

    def __init__(self, folder: Path, subsets: Sequence[str]):
        self._folder = folder / "labels" / "det_20"
        self._folder.mkdir(parents=True)
        self._frames: dict[str, list[str]] = {subset: [] for subset in subsets}
        self._next_id = 0

    def add(self, record: Record) -> None:
        """Adds the labels of a scene."""
        labels: list[dict[str, Any]] = []
        for annotated in record.annotations:
            xmin, ymin, xmax, ymax = (float(edge) for edge in annotated.box)
            labels.append(
                {
                    "id": f"{self._next_id:010d}",
                    "attributes": {
                        "occluded": annotated.occluded,
                        "truncated": annotated.truncated,
                        "trafficLightColor": "NA",
                    },
                    "category": annotated.category,
                    "box2d": {"x1": xmin, "y1": ymin, "x2": xmax - 1, "y2": ymax - 1},
                }
            )
            self._next_id += 1
        name = Path(bdd_file(record.subset, record.index)).name
        frame = {
            "name": name,
            "attributes": record.attributes,
            "timestamp": 10000,
            "labels": labels or None,
        }
        self._frames[record.subset].append(json.dumps(frame))

    def close(self) -> None:
        """Writes the lists."""
        for subset, frames in self._frames.items():
            path = self._folder / f"det_{subset}.json"
            path.write_text(_json_list(frames) + "\n", encoding="utf-8")


class CocoWriter(Writer):
    """COCO's instances: one JSON file.

    Boxes are x, y, width, height; a crowd has `iscrowd` 1 and run lengths.
    """

    def __init__(self, folder: Path, subsets: Sequence[str]):
        (subset,) = subsets
        self._file = folder / "annotations" / f"instances_{subset}2017.json"
        self._images: list[dict[str, Any]] = []
        self._annotations: list[dict[str, Any]] = []

    def add(self, record: Record) -> None:
        """Adds the annotations of a scene."""
        image_id = coco_id(record.index)
        image = {
            "id": image_id,
            "file_name": Path(coco_file(record.subset, record.index)).name,
            "width": record.width,
            "height": record.height,
            "license": _COCO_LICENCE["id"],
        }
        self._images.append(image)
        for annotated in record.annotations:
            annotation = {
                "id": len(self._annotations) + 1,
                "image_id": image_id,
                "category_id": coco_category_ids()[annotated.category],
                **_coco_shape(annotated, record),
            }
            self._annotations.append(annotation)

    def close(self) -> None:
        """Writes the file."""
        info = {"description": "farther demo world, playing COCO", "year": 2017}
        write_coco(
            self._file,
            info,
            licenses=[_COCO_LICENCE],
            categories=_coco_categories(),
            images=self._images,
            annotations=self._annotations,
        )


class OpenImagesWriter(Writer):
    """OpenImages: a table of boxes, the names of the classes, and their hierarchy.

    Edges of boxes are fractions of the image's width and height.
    """

    def __init__(self, folder: Path, subsets: Sequence[str]):
        (subset,) = subsets
        _write_class_names(folder / "class-descriptions-boxable.csv")
        _write_hierarchy(folder / "bbox_labels_600_hierarchy.json")
        path = folder / f"{subset}-annotations-bbox.csv"
        self._file = path.open("w", encoding="utf-8", newline="")
        self._rows = csv.DictWriter(self._file, BOX_FIELDS, restval=0, lineterminator="\n")
        self._rows.writeheader()

    def add(self, record: Record) -> None:
        """Writes the boxes of a scene."""
        for annotated in record.annotations:
            xmin, ymin, xmax, ymax = annotated.box
            self._rows.writerow(
                {
                    "ImageID": open_images_id(record.subset, record.index),
                    "Source": "xclick",
                    "LabelName": _open_images()["ids"][annotated.category],
                    "Confidence": 1,
                    "XMin": f"{xmin / record.width:.6f}",
                    "XMax": f"{xmax / record.width:.6f}",
                    "YMin": f"{ymin / record.height:.6f}",
                    "YMax": f"{ymax / record.height:.6f}",
                    "IsOccluded": int(annotated.occluded),
                    "IsTruncated": int(annotated.truncated),
                    "IsGroupOf": int(annotated.is_group),
                }
            )

    def close(self) -> None:
        """Completes the table."""
        self._file.close()


def _write_class_names(path: Path) -> None:
    """Writes OpenImages' table of labels and names."""
    label_by_name = _open_images()["ids"]
    rows = [(label, name) for name, label in label_by_name.items() if name != _ROOT]
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(sorted(rows))


def _write_hierarchy(path: Path) -> None:
    """Writes OpenImages' class hierarchy."""
    table = _open_images()
    hierarchy = _node(_ROOT, table["hierarchy"], table)
    path.write_text(json.dumps(hierarchy, indent=1) + "\n", encoding="utf-8")


def crop_file(subset: str, index: int) -> str:
    """Path of an image in the folder of its class."""
    return f"{subset}/{crop_class(subset, index)}/{index:06d}.jpg"


def voc_file(subset: str, index: int) -> str:
    """Path of an image; the year depends on the subset."""
    return f"VOC2012/JPEGImages/{_VOC_YEAR[subset]}_{index:06d}.jpg"


def bdd_file(subset: str, index: int) -> str:
    """Path of an image, named like those of the original."""
    digest = blake2b(f"bdd/{subset}/{index}".encode(), digest_size=8).hexdigest()
    return f"images/100k/{subset}/{digest[:8]}-{digest[8:]}.jpg"


def coco_id(index: int) -> int:
    """COCO's number of an image."""
    return index + 1


def coco_file(subset: str, index: int) -> str:
    """Path of an image."""
    return f"{subset}2017/{coco_id(index):012d}.jpg"


def open_images_id(subset: str, index: int) -> str:
    """Sixteen hexadecimal digits."""
    return blake2b(f"openimages/{subset}/{index}".encode(), digest_size=8).hexdigest()


def open_images_file(subset: str, index: int) -> str:
    """Path of an image."""
    return f"{subset}/{open_images_id(subset, index)}.jpg"


@dataclass(frozen=True)
class Format:
    """Files of a dataset.

    Args:
        image_file: Path of an image by subset and number.
        writer: The writer of annotations.
        image_id: The image's id in the tables that `ingest` writes, by its path.
    """

    image_file: Callable[[str, int], str]
    writer: Callable[[Path, Sequence[str]], Writer]
    image_id: Callable[[Path], str] = attrgetter("stem")


def _path_in_subset(file: Path) -> str:
    """The path of an image without the folder of its subset."""
    return "/".join(file.parts[1:])


FORMATS: Mapping[str, Format] = {
    "voc": Format(voc_file, VocWriter),
    "bdd": Format(bdd_file, BddWriter, attrgetter("name")),
    "coco": Format(coco_file, CocoWriter),
    "openimages": Format(open_images_file, OpenImagesWriter),
    CROPS: Format(crop_file, Writer, _path_in_subset),
}


@lru_cache(maxsize=1)
def coco_category_ids() -> dict[str, int]:
    """COCO's numbers of its 80 categories."""
    return {row["name"]: row["id"] for row in _coco_categories()}


def _texts(parent: ElementTree.Element, **values: str | int) -> None:
    """Adds one tag per value."""
    for tag, value in values.items():
        ElementTree.SubElement(parent, tag).text = str(value)


def _json_list(items: Sequence[str]) -> str:
    """A JSON list with one encoded item per line."""
    lines = ",".join(f"\n{item}" for item in items)
    return f"[{lines}\n]"


def _coco_shape(annotated: SceneObject, record: Record) -> dict[str, Any]:
    """Fields of an annotation that describe box and outline."""
    xmin, ymin, xmax, ymax = annotated.box
    segments = list(annotated.segments)
    segmentation: Any = [segments]
    if annotated.is_group:
        segmentation = {"size": [record.height, record.width], "counts": segments}
    return {
        "bbox": [xmin, ymin, xmax - xmin, ymax - ymin],
        "area": annotated.area,
        "iscrowd": int(annotated.is_group),
        "segmentation": segmentation,
    }


def _coco_categories() -> list[dict[str, Any]]:
    """COCO's 80 categories."""
    categories = []
    for group, members in demo_table("coco_categories.yaml").items():
        for category_id, name in members.items():
            categories.append({"id": category_id, "name": name, "supercategory": group})
    return categories


def _open_images() -> dict[str, Any]:
    """Ids, hierarchy and parts of OpenImages' categories."""
    return demo_table("openimages_categories.yaml")


def _node(name: str, children: dict[str, Any], table: dict[str, Any]) -> dict[str, Any]:
    """A category with its subcategories (`Subcategory`) and parts (`Part`)."""
    node: dict[str, Any] = {"LabelName": table["ids"][name]}
    if children:
        node["Subcategory"] = [_node(child, below, table) for child, below in children.items()]
    if name in table["parts"]:
        node["Part"] = [_node(part, {}, table) for part in table["parts"][name]]
    return node
