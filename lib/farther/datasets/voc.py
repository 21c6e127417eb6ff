"""Pascal VOC: one XML file per image, image sets in `ImageSets/Main` (the VOC2007 and VOC2012 development kits)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar
from xml.etree import ElementTree

from pydantic import Field
from pydantic.dataclasses import dataclass

from farther.datasets.base import (
    AnnotatedImages,
    Annotations,
    DataWarning,
    Expected,
    Location,
    ObjectRows,
    Reader,
    fill_all,
    image_file,
    register,
)
from farther.datasets.records import read_lines, shorten
from farther.errors import DataError
from farther.registry import STRICT
from farther.tables.files import inside

CLASSES = (
    "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow",
    "diningtable", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor",
)  # fmt: skip

#: The second column of an image set of one class: 1 if the image shows that class.
FLAG = re.compile(r"\s+(-1|0|1)$")

ABSENT = "the image set does not exist; parameter 'image_sets' says which to read"

ORIGINALS = {subset: (f"VOC2012/{subset}",) for subset in ("train", "val", "test")}


@register("voc")
@dataclass(config=STRICT, kw_only=True)
class VOC(Reader):
    """Pascal VOC.

    Pixels count from 1 and a box includes its last one, so the edges are xmin - 1, ymin - 1, xmax, ymax; coordinates
    with fractions occur and are taken as they are. `part`s of objects (head, hand, foot) are left out; so are
    `truncated` and `occluded`, which the tables have no column for. The image id is the stem that the image set lists;
    it also names the XML file and the image, as in VOC's own tools.

    Tolerated, as VOC's tools do: absent `difficult`, `truncated`, `pose`, `size` (objects count as not difficult); a
    second column in an image set (the flag of a single class); no object at all. Tolerated and listed: a `filename`
    other than the image's.
    Errors: an image that is listed twice, or without an XML file; XML that does not parse; an object without `name`
    or `bndbox`, or of an unknown class; coordinates that are not numbers or in the wrong order; a name that leaves its
    folder.

    Args:
        image_sets: The image sets that each subset consists of: `{"train": ["VOC2007/trainval",
            "VOC2012/trainval"]}`. When empty, those of VOC2012's train, val and test that are present.
        categories: Names of the classes.
        extension: Of the image files.
    """

    SOURCE: ClassVar[str] = "host.robots.ox.ac.uk/pascal/VOC (Everingham et al., 2010, doi:10.1007/s11263-009-0275-4)"

    image_sets: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    categories: tuple[str, ...] = CLASSES
    extension: str = ".jpg"

    def subsets(self) -> list[str]:
        """Names of the subsets; see `Reader`."""
        return self._subsets_present(
            list(self.image_sets), fill_all(["VOC2012/ImageSets/Main/{subset}.txt"], list(ORIGINALS))
        )

    def expects(self, subset: str) -> list[Expected]:
        """Files and folders of a subset; see `Reader`."""
        expected = []
        for image_set in self._image_sets(subset):
            folder, _, name = image_set.rpartition("/")
            kit = f"development kit of {folder or 'VOC2007 or VOC2012'}"
            for what, path in (
                (f"image set {name}", f"ImageSets/Main/{name}.txt"),
                ("annotations", "Annotations"),
                ("images", "JPEGImages"),
            ):
                expected.append(Expected(what, (_join(folder, path),), kit))
        return expected

    def read(self, subset: str) -> Annotations:
        """The annotations of one subset; see `Reader` and, for what is an error, the class."""
        images: list[tuple[str, str, int, int]] = []
        objects, warnings, files = ObjectRows(), list[DataWarning](), list[str]()
        for image_id, folder, location in self._listed(subset):
            file = image_file(self.root, _join(folder, "JPEGImages"), image_id + self.extension, location)
            xml = image_file(self.root, _join(folder, "Annotations"), f"{image_id}.xml", location)
            annotation = _Annotation(self.root / xml)
            warnings.extend(_other_name(annotation, xml, file))
            for row, element in enumerate(annotation.root.iterfind("object")):
                category = self._category(annotation, row, element)
                difficult = annotation.flag(row, element, "difficult")
                objects.add(len(images), annotation.box(row, element), category, row, is_difficult=difficult)
            images.append((image_id, file, annotation.size("width"), annotation.size("height")))
            files.append(xml)
        return Annotations(
            images=AnnotatedImages.of(images),
            objects=objects.columns(),
            categories=list(self.categories),
            warnings=warnings,
            files=files,
            row="object[{row}]",
            box_field="bndbox",
            root=self.root,
        )

    def _image_sets(self, subset: str) -> tuple[str, ...]:
        return self.image_sets.get(subset) or ORIGINALS.get(subset, (subset,))

    def _category(self, annotation: _Annotation, row: int, element: ElementTree.Element) -> int:
        name = annotation.text(row, element, "name")
        if name not in self.categories:
            known = ", ".join(self.categories)
            raise annotation.error(f"unknown class {name!r}; parameter 'categories' has {known}", row, "name")
        return self.categories.index(name)

    def _listed(self, subset: str) -> Iterator[tuple[str, str, Location]]:
        """Image id, folder of its year, and the location that lists it, for each image of a subset."""
        listed: dict[str, str] = {}
        for image_set in self._image_sets(subset):
            folder, _, name = image_set.rpartition("/")
            path = inside(self.root, _join(folder, f"ImageSets/Main/{name}.txt"))
            for line, text in enumerate(read_lines(path, ABSENT), start=1):
                if text:
                    image_id, location = FLAG.sub("", text), Location(path, str(line))
                    if image_id in listed:
                        raise location.error(f"image {image_id!r} is listed twice, first in {listed[image_id]}")
                    listed[image_id] = f"{image_set} line {line}"
                    yield image_id, folder, location


class _Annotation:
    """One XML file."""

    def __init__(self, path: Path):
        self.path = path
        try:
            self.root = ElementTree.parse(path).getroot()
        except FileNotFoundError:
            raise DataError("the file does not exist, but an image set lists its image", file=path) from None
        except (ElementTree.ParseError, ValueError, LookupError) as error:  # the last two: an encoding that is unknown
            raise DataError(f"not XML: {error}; is the file whole?", file=path) from None

    def error(self, problem: str, row: int | None, field: str) -> DataError:
        """An error that names file, object and field."""
        return DataError(problem, file=self.path, row=None if row is None else f"object[{row}]", field=field)

    def text(self, row: int | None, element: ElementTree.Element, field: str) -> str:
        """Text of a tag within `element`, which must be there and not be empty."""
        text = (element.findtext(field) or "").strip()
        if not text:
            raise self.error(f"the tag is missing or empty in <{element.tag}>", row, field)
        return text

    def flag(self, row: int, element: ElementTree.Element, field: str) -> bool:
        """A tag that, where it is there, must be 0 or 1."""
        text = (element.findtext(field) or "0").strip()
        if text not in ("0", "1"):
            raise self.error(f"expected 0 or 1, found {shorten(text)}", row, field)
        return text == "1"

    def number(self, row: int | None, element: ElementTree.Element, field: str) -> float:
        """Text of a tag as a number."""
        text = self.text(row, element, field)
        try:
            return float(text)
        except ValueError:
            raise self.error(f"expected a number, found {shorten(text)}", row, field) from None

    def box(self, row: int, element: ElementTree.Element) -> tuple[float, float, float, float]:
        """Edges of an object's box."""
        if element.find("bndbox") is None:
            raise self.error("the object has no box", row, "bndbox")
        left, top, right, bottom = (
            self.number(row, element, f"bndbox/{side}") for side in ("xmin", "ymin", "xmax", "ymax")
        )
        return left - 1, top - 1, right, bottom

    def size(self, side: str) -> int:
        """The image's width or height, 0 where it is not given (some files hold a 0)."""
        if self.root.find(f"size/{side}") is None:
            return 0
        value = self.number(None, self.root, f"size/{side}")
        if value < 0 or not value.is_integer():
            raise self.error(f"expected a number of pixels, found {value:g}", None, f"size/{side}")
        return int(value)


def _other_name(annotation: _Annotation, xml: str, file: str) -> Iterator[DataWarning]:
    """A warning when the annotation names another image than the one it is listed with."""
    name = (annotation.root.findtext("filename") or "").strip()
    if name:
        try:
            inside(annotation.path.parent, name)
        except DataError as error:
            raise annotation.error(error.problem, None, "filename") from None
        if name != Path(file).name:
            action = f"read as the annotation of {Path(file).name}"
            yield DataWarning("image called otherwise", "image", xml, None, "filename", name, action)


def _join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name
