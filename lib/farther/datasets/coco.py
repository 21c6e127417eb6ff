"""COCO: one JSON file per subset (Lin et al., 2014; the data format on cocodataset.org)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple

from pydantic import Field
from pydantic.dataclasses import dataclass

from farther.datasets.base import (
    Annotations,
    Collector,
    Credit,
    Edges,
    Expected,
    Reader,
    SecondFile,
    fill,
    image_file,
    register,
)
from farther.datasets.coco_recognition import class_numbers, recognise_coco
from farther.datasets.recognition import Recognised
from farther.datasets.records import Location, Record, stream
from farther.naming.registry import STRICT
from farther.tables.files import inside, is_present
from farther.tables.oriented import angle_unit, envelope_of_corners, envelope_of_rotated


class _Categories(NamedTuple):
    """The categories of a file: their names in its order, and the index of each by its id."""

    names: list[str]
    index_by_id: dict[str, int]


@register("coco")
@dataclass(config=STRICT, kw_only=True)
class COCO(Reader):
    """COCO instances, and any file in that format.

    A box is x, y, width, height, with x and y edges already; `iscrowd` marks a box of several
    objects. The image id is COCO's number, padded with zeros to 12 digits as in its file names (an
    id that is text stays as it is). The object id is the annotation's id. Two fields that COCO does
    not have are read where they are: `is_difficult` marks difficult objects, and `object_id` is the
    object id instead. Oriented boxes are counted in a warning, and read as the upright boxes around
    them: a `bbox` of four corners (8 numbers), and CVAT's `attributes.rotation`, in degrees about
    the centre. Outlines (`segmentation`, polygons or run lengths) are not read. Files of
    gigabytes are supported: a file is parsed as a stream, once for each of its lists.

    Tolerated, as pycocotools does: ids with gaps; images without annotations; absent `iscrowd`,
    `area`, `segmentation`, `width`, `height`, `info`, `licenses`. Tolerated and listed, because
    pycocotools never evaluates them: annotations of an image or a category that the file does not
    define (dropped). Also listed: two categories of one name (read as one), a category of `renamed`
    that the file does not have, and a subset of `layout` whose file is absent while others are
    present. Errors: JSON that does not parse; an absent `images`, `annotations` or `categories`;
    fields of a wrong type; an id that occurs twice; a negative width or height; a file name that
    leaves its folder; a `bbox` of 5 numbers, or another angle than CVAT's.

    Args:
        subset_names: Subsets to read. When empty, those of `layout`, else of train2017, val2017,
            train2014 and val2014, that are present.
        annotations: The file of a subset, within the root.
        images: The folder of a subset's images, within the root.
        layout: File and folder of images of the subsets that `annotations` and `images` do not fit:
            `{"val": ["labels.json", "pictures"]}`.
        renamed: Names for categories instead of the file's own; several may become one.
    """

    SOURCE: ClassVar[str] = "cocodataset.org (Lin et al., 2014, doi:10.1007/978-3-319-10602-1_48)"

    COUNTS_UNLISTED: ClassVar[bool] = True
    ORIGINALS: ClassVar[tuple[str, ...]] = ("train2017", "val2017", "train2014", "val2014")

    annotations: str = "annotations/instances_{subset}.json"
    images: str = "{subset}"
    layout: dict[str, tuple[str, str]] = Field(default_factory=dict)
    renamed: dict[str, str] = Field(default_factory=dict)

    @classmethod
    def recognises(cls, folder: Path) -> Recognised | None:
        """A folder with COCO files; see `Reader`."""
        return recognise_coco(folder)

    def subsets(self) -> list[str]:
        """Names of the subsets; see `Reader`."""
        if self.subset_names:
            return list(self.subset_names)
        return self._present(self.layout or self.ORIGINALS)

    def absent_subsets(self) -> dict[str, str]:
        """Subsets of a user's `layout` whose file is absent; see `Reader`."""
        published_layout = type(self)(root=self.root).layout
        if self.subset_names or self.layout == published_layout:
            return {}

        present = self.subsets()
        absent = {}
        for subset, (file, _) in self.layout.items():
            if subset not in present:
                absent[subset] = file
        return absent

    def expects(self, subset: str) -> list[Expected]:
        """Files and folders of a subset; see `Reader`."""
        return [
            Expected("annotations", (self._file(subset),), f"instance annotations of {subset}"),
            Expected("images", (self._image_folder(subset),), f"images of {subset}"),
        ]

    def class_numbers(self, categories: Sequence[str]) -> dict[int, str]:
        """The ids of the categories of the first subset of `layout`; see `Reader`."""
        if not self.layout:
            return {}
        first_file, _ = next(iter(self.layout.values()))
        return class_numbers(inside(self.root, first_file))

    def read(self, subset: str) -> Annotations:
        """The annotations of one subset; see `Reader` and, for what is an error, the class."""
        file = self._file(subset)
        path = self._first_present([file], subset, "annotations")
        collector = Collector(self.root)
        self._add_images(collector, path, self._image_folder(subset))
        categories = self._categories(collector, path)
        add_objects(collector, path, categories.index_by_id)
        second_file = self._add_second(collector, subset, categories.names)
        return collector.annotations(
            second=second_file,
            categories=categories.names,
            parents=self._parents(path),
            files=[file],
            row="annotations[{row}]",
            box_field="bbox",
        )

    def credits(self, subset: str) -> Iterator[tuple[str, Credit]]:
        """Credit of each image, by `licenses` and the fields of the image; see `Reader`."""
        path = inside(self.root, self._file(subset))
        if not is_present(path):
            return

        licence_by_id = {}
        for licence in stream(path, "licenses", required=False):
            licence_by_id[id_text(licence, "id")] = licence

        for image in stream(path, "images"):
            licence_of_image = None
            if image.has("license"):
                licence_of_image = licence_by_id.get(id_text(image, "license"))
            credit = Credit(
                license=_first_text(licence_of_image, "name"),
                license_url=_first_text(licence_of_image, "url"),
                author=_first_text(image, "author"),
                source_url=_first_text(image, "source_url", "flickr_url", "coco_url"),
            )
            yield id_text(image, "id"), credit

    def _file(self, subset: str) -> str:
        """The annotation file of a subset, within the root."""
        if subset in self.layout:
            return self.layout[subset][0]
        return fill(self.annotations, subset)

    def _image_folder(self, subset: str) -> str:
        """The folder of images of a subset, within the root."""
        if subset in self.layout:
            return self.layout[subset][1]
        return fill(self.images, subset)

    def _image_name(self, folder: str) -> Callable[[str], str]:
        """Mapping from the annotations' file names to paths within the folder: the identity."""
        return str

    def _add_second(
        self, collector: Collector, subset: str, categories: list[str]
    ) -> SecondFile | None:
        """Adds the objects and categories of a second file; None where there is no such file."""
        return None

    def _parents(self, path: Path) -> dict[str, list[str]]:
        """Ancestors of each category: none, as COCO's supercategories are groups and not kinds."""
        return {}

    def _add_images(self, collector: Collector, path: Path, folder: str) -> None:
        """Adds the images of a file."""
        image_name = self._image_name(folder)
        for image in stream(path, "images"):
            name = image_name(image.text("file_name"))
            file = image_file(self.root, folder, name, image.location("file_name"))
            collector.add_image(id_text(image, "id"), file, image.location("id"), **image.sides())

    def _categories(self, collector: Collector, path: Path) -> _Categories:
        """The categories of a file; warns about repeated names, and about unused new names."""
        index_by_id: dict[str, int] = {}
        index_by_name: dict[str, int] = {}
        name_counts = Counter[str]()
        for record in stream(path, "categories"):
            category_id = id_text(record, "id")
            name = record.text("name").strip()  # Objects365 has "Table Tennis "
            if category_id in index_by_id:
                raise record.error(f"id {record.values['id']!r} occurs twice", "id")
            name_counts[name] += 1
            new_name = self.renamed.get(name, name)
            index_by_id[category_id] = index_by_name.setdefault(new_name, len(index_by_name))

        location = Location(path, None, "categories")
        for name, count in sorted(name_counts.items()):
            if count > 1:
                collector.warn(
                    location, "two categories with the same name", repr(name), "read as one"
                )
        collector.warn_not_renamed(location, name_counts, self.renamed)
        return _Categories(list(index_by_name), index_by_id)


def add_objects(
    collector: Collector, path: Path, categories: dict[str, int], first_id: int | None = None
) -> None:
    """Adds the objects of a file; warns about each of an unknown image or category.

    Args:
        collector: Takes the objects; it has the images.
        path: The file.
        categories: Index of each category by its id.
        first_id: Object id of the first object; None: object ids are those of the file.

    Raises:
        DataError: two objects have the same id, or a field has a wrong type.
    """
    object_ids: set[int] = set()
    oriented: list[Record] = []
    for row, record in enumerate(stream(path, "annotations")):
        id_field = "object_id" if record.has("object_id") else "id"
        if first_id is None:
            object_id = record.integer(id_field)
        else:
            object_id = first_id + row
        if object_id in object_ids:
            raise record.error(f"id {object_id} occurs twice", id_field)
        object_ids.add(object_id)

        edges = box_of(record)
        if is_oriented(record):
            oriented.append(record)
        is_crowd = record.flag("iscrowd")
        is_difficult = record.flag("is_difficult")
        image_id = id_text(record, "image_id")
        category_id = id_text(record, "category_id")
        if image_id not in collector.rows:
            _warn_unknown(collector, record, "image")
        elif category_id not in categories:
            _warn_unknown(collector, record, "category")
        else:
            collector.add_object(
                collector.rows[image_id],
                edges,
                categories[category_id],
                row,
                object_id=object_id,
                is_crowd=is_crowd,
                is_difficult=is_difficult,
            )
    if oriented:
        collector.warn_oriented(oriented[0].location("bbox"), len(oriented))


def box_of(record: Record) -> Edges:
    """The upright box of an object, around an oriented one.

    A `bbox` of 8 numbers has four corners; `attributes.rotation`, as CVAT writes it, are degrees
    about the centre of the box.

    Raises:
        DataError: the box is oriented, and how is not known.
    """
    box = record.values.get("bbox")
    if isinstance(box, list) and len(box) == 8:
        return envelope_of_corners(record.numbers("bbox", 8))
    for name, value in record.values.items():
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if is_number and value != 0 and angle_unit(name) is not None:
            problem = (
                f"{value:g}, an oriented box, but COCO does not define how an angle rotates it: "
                "write the upright box around it (x, y, width, height), or the four corners as 8 "
                "numbers, into bbox; leave the field out where boxes are upright"
            )
            raise record.error(problem, name)
    x, y, width, height = record.numbers("bbox", 4)
    degrees = _rotation(record)
    if degrees:
        centre = (x + width / 2, y + height / 2)
        return envelope_of_rotated(*centre, width, height, math.radians(degrees))
    return x, y, x + width, y + height


def is_oriented(record: Record) -> bool:
    """Whether the box of an object is oriented."""
    return len(record.values["bbox"]) == 8 or _rotation(record) != 0


def _rotation(record: Record) -> float:
    """The angle in CVAT's attributes of an object, in degrees; 0 without one."""
    attributes = record.values.get("attributes")
    if not isinstance(attributes, dict) or attributes.get("rotation") is None:
        return 0.0
    return record.record("attributes").number("rotation")


def _warn_unknown(collector: Collector, record: Record, kind: str) -> None:
    """Adds a warning about an object whose image or category the file does not define."""
    field = f"{kind}_id"
    collector.warn(
        record.location(field),
        f"object of an unknown {kind}",
        repr(record.values[field]),
        "dropped",
        about="object",
    )


def id_text(record: Record, field: str) -> str:
    """An id as text.

    COCO's numbers are padded as in its file names; files of other tools may have text.
    """
    if isinstance(record.values.get(field), str):
        return record.text(field)
    return f"{record.integer(field):012d}"


def _first_text(record: Record | None, *fields: str) -> str:
    """The first non-empty field of several, as text; "" where there is none, or no record."""
    if record is None:
        return ""
    for field in fields:
        if record.values.get(field):
            return str(record.values[field])
    return ""
