"""Writes PASCAL VOC: one XML file an image, and a list of images a subset."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from farther.tools.demo.records import Annotation, Record

_YEAR = {"train": 2007, "val": 2008, "test": 2012}
_DIFFICULT = 0.45


def image_name(subset: str, index: int) -> str:
    """Name without ending; the year tells the subsets apart."""
    return f"{_YEAR[subset]}_{index:06d}"


def image_file(subset: str, index: int) -> str:
    """Path of an image inside the dataset."""
    return f"VOC2012/JPEGImages/{image_name(subset, index)}.jpg"


class VocWriter:
    """Boxes are 1-based pixels, both ends inclusive; an object less than 45 % visible is `difficult`."""

    def __init__(self, folder: Path, subsets: tuple[str, ...]):
        self._annotations = folder / "VOC2012" / "Annotations"
        self._annotations.mkdir(parents=True)
        lists = folder / "VOC2012" / "ImageSets" / "Main"
        lists.mkdir(parents=True)
        self._lists = {subset: (lists / f"{subset}.txt").open("w", encoding="utf-8") for subset in subsets}

    def add(self, record: Record) -> None:
        """Write one image's annotations."""
        name = image_name(record.subset, record.index)
        root = ElementTree.Element("annotation")
        _texts(root, folder="VOC2012", filename=f"{name}.jpg")
        _texts(
            ElementTree.SubElement(root, "source"), database="farther demo world", annotation="exact", image="OpenMoji"
        )
        _texts(ElementTree.SubElement(root, "size"), width=record.width, height=record.height, depth=3)
        _texts(root, segmented=0)
        for one in record.annotations:
            _object(root, one)
        ElementTree.indent(root)
        text = ElementTree.tostring(root, encoding="unicode")
        (self._annotations / f"{name}.xml").write_text(text + "\n", encoding="utf-8")
        self._lists[record.subset].write(f"{name}\n")

    def close(self) -> None:
        """Finish the lists."""
        for file in self._lists.values():
            file.close()


def _object(root: ElementTree.Element, one: Annotation) -> None:
    element = ElementTree.SubElement(root, "object")
    _texts(
        element,
        name=one.category,
        pose="Unspecified",
        truncated=int(one.truncated),
        difficult=int(one.visible < _DIFFICULT),
    )
    xmin, ymin, xmax, ymax = one.box
    _texts(ElementTree.SubElement(element, "bndbox"), xmin=xmin + 1, ymin=ymin + 1, xmax=xmax, ymax=ymax)


def _texts(parent: ElementTree.Element, **values: str | int) -> None:
    for tag, value in values.items():
        ElementTree.SubElement(parent, tag).text = str(value)
