"""COCO: one JSON file per subset (Lin et al., 2014; the data format on cocodataset.org)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

from pydantic import Field
from pydantic.dataclasses import dataclass

from farther.datasets.base import (
    Annotations,
    Collector,
    Credit,
    Expected,
    Reader,
    fill,
    image_file,
    register,
)
from farther.datasets.records import Location, Record, stream
from farther.registry import STRICT
from farther.tables.files import inside, is_present


@register("coco")
@dataclass(config=STRICT, kw_only=True)
class COCO(Reader):
    """COCO instances, and any file in that format.

    A box is x, y, width, height, with x and y edges already; `iscrowd` marks a box of several
    objects. The image id is COCO's number, padded with zeros to 12 digits as in its file names (an
    id that is text stays as it is). The object id is the annotation's id. Two fields that COCO does
    not have are read where they are: `is_difficult` marks difficult objects, and `object_id` is the
    object id instead. Outlines (`segmentation`, polygons or run lengths) are not read. A file may
    have gigabytes: it is parsed as a stream, once for each of its lists.

    Tolerated, as pycocotools does: ids with gaps; images without annotations; absent `iscrowd`,
    `area`, `segmentation`, `width`, `height`, `info`, `licenses`. Tolerated and listed, because
    pycocotools never evaluates them: annotations of an image or a category that the file does not
    define (dropped). Listed too: two categories of one name (read as one), a category of `renamed`
    that the file does not have, and a subset of `layout` whose file is not there, beside others
    that are. Errors: JSON that does not parse; an absent `images`, `annotations` or `categories`;
    fields of a wrong type; an id that occurs twice; a negative width or height; a file name that
    leaves its folder.

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

    ORIGINALS: ClassVar[tuple[str, ...]] = ("train2017", "val2017", "train2014", "val2014")

    annotations: str = "annotations/instances_{subset}.json"
    images: str = "{subset}"
    layout: dict[str, tuple[str, str]] = Field(default_factory=dict)
    renamed: dict[str, str] = Field(default_factory=dict)

    def subsets(self) -> list[str]:
        """Names of the subsets; see `Reader`."""
        return list(self.subset_names) or self._present(self.layout or self.ORIGINALS)

    def absent_subsets(self) -> dict[str, str]:
        """Subsets of a `layout` that a user wrote and whose file is not there; see `Reader`."""
        if self.subset_names or self.layout == type(self)(root=self.root).layout:
            return {}
        present = self.subsets()
        return {subset: file for subset, (file, _) in self.layout.items() if subset not in present}

    def expects(self, subset: str) -> list[Expected]:
        """Files and folders of a subset; see `Reader`."""
        file, folder = self._placed(subset)
        return [
            Expected("annotations", (file,), f"instance annotations of {subset}"),
            Expected("images", (folder,), f"images of {subset}"),
        ]

    def read(self, subset: str) -> Annotations:
        """The annotations of one subset; see `Reader` and, for what is an error, the class."""
        file, folder = self._placed(subset)
        path = self._first_present([file], subset, "annotations")
        found = Collector(self.root)
        self._add_images(found, path, folder)
        names, categories = self._categories(found, path)
        add_objects(found, path, categories)
        return found.annotations(
            second=self._add_second(found, subset, names),
            categories=names,
            parents=self._parents(path),
            files=[file],
            row="annotations[{row}]",
            box_field="bbox",
        )

    def credits(self, subset: str) -> Iterator[tuple[str, Credit]]:
        """Licence and author of each image, as `licenses` and the images' fields give them; see `Reader`."""
        path = inside(self.root, self._placed(subset)[0])
        if not is_present(path):
            return
        licences = {identity(one, "id"): one for one in stream(path, "licenses", required=False)}
        for record in stream(path, "images"):
            licence = licences.get(identity(record, "license")) if record.has("license") else None
            source_url = _optional(record, "source_url", "flickr_url", "coco_url")
            credit = Credit(
                _optional(licence, "name"),
                _optional(licence, "url"),
                _optional(record, "author"),
                source_url,
            )
            yield identity(record, "id"), credit

    def _placed(self, subset: str) -> tuple[str, str]:
        """The file and the folder of images of a subset, within the root."""
        return self.layout.get(subset) or (
            fill(self.annotations, subset),
            fill(self.images, subset),
        )

    def _image_name(self, folder: str) -> Callable[[str], str]:
        """Mapping from the annotations' file names to paths within the folder: the identity."""
        return str

    def _add_second(
        self, found: Collector, subset: str, names: list[str]
    ) -> tuple[int, str] | None:
        """Adds objects and categories of a second file; see `Annotations.second`. None: there is no such file."""
        return None

    def _parents(self, path: Path) -> dict[str, list[str]]:
        """Ancestors of each category: none, as COCO's supercategories are groups and not kinds."""
        return {}

    def _add_images(self, found: Collector, path: Path, folder: str) -> None:
        """Adds the images."""
        file_of = self._image_name(folder)
        for record in stream(path, "images"):
            file = image_file(
                self.root, folder, file_of(record.text("file_name")), record.location("file_name")
            )
            found.add_image(identity(record, "id"), file, record.location("id"), **record.sides())

    def _categories(self, found: Collector, path: Path) -> tuple[list[str], dict[str, int]]:
        """Names of the categories in the file's order, and the row of each id; warns about unused new names."""
        rows, called, names = dict[str, int](), dict[str, int](), Counter[str]()
        for record in stream(path, "categories"):
            key, name = (
                identity(record, "id"),
                record.text("name").strip(),
            )  # Objects365 has "Table Tennis "
            if key in rows:
                raise record.error(f"id {record.values['id']!r} occurs twice", "id")
            names[name] += 1
            rows[key] = called.setdefault(self.renamed.get(name, name), len(called))
        location = Location(path, None, "categories")
        for name in sorted(name for name, count in names.items() if count > 1):
            found.warn(location, "two categories with the same name", repr(name), "read as one")
        found.warn_not_renamed(location, names, self.renamed)
        return list(called), rows


def add_objects(
    found: Collector, path: Path, categories: dict[str, int], first_id: int | None = None
) -> None:
    """Adds the objects of a file; warns about each that refers to nothing.

    Args:
        categories: Row of each category by its id.
        first_id: Object id of the first object; None: object ids are those of the file.
    """
    seen = set[int]()
    for row, record in enumerate(stream(path, "annotations")):
        field = "object_id" if record.has("object_id") else "id"
        object_id = record.integer(field) if first_id is None else first_id + row
        if object_id in seen:
            raise record.error(f"id {object_id} occurs twice", field)
        seen.add(object_id)
        x, y, width, height = record.numbers("bbox", 4)
        flags = {"is_crowd": record.flag("iscrowd"), "is_difficult": record.flag("is_difficult")}
        image, category = identity(record, "image_id"), identity(record, "category_id")
        if image in found.rows and category in categories:
            box = (x, y, x + width, y + height)
            found.add_object(
                found.rows[image], box, categories[category], row, object_id=object_id, **flags
            )
            continue
        unknown = "category" if image in found.rows else "image"
        location, value = record.location(f"{unknown}_id"), repr(record.values[f"{unknown}_id"])
        found.warn(location, f"object of an unknown {unknown}", value, "dropped", about="object")


def identity(record: Record, field: str) -> str:
    """An id as text: COCO's numbers are padded as in its file names; files by other tools may have text."""
    is_text = isinstance(record.values.get(field), str)
    return record.text(field) if is_text else f"{record.integer(field):012d}"


def _optional(record: Record | None, *fields: str) -> str:
    """The first of several texts that a record has; "" where it has none."""
    values = {} if record is None else record.values
    return next((str(values[field]) for field in fields if values.get(field)), "")
