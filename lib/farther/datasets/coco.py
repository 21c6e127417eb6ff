"""COCO: one JSON file per subset (Lin et al., 2014; the data format on cocodataset.org)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field
from pydantic.dataclasses import dataclass

from farther.datasets.base import (
    Annotations,
    Collector,
    Credit,
    DataWarning,
    Expected,
    Reader,
    fill,
    image_file,
    register,
)
from farther.datasets.records import Record, stream
from farther.registry import STRICT
from farther.tables.files import inside

ORIGINALS = ("train2017", "val2017", "train2014", "val2014")


@register("coco")
@dataclass(config=STRICT, kw_only=True)
class COCO(Reader):
    """COCO instances, and any file of that form.

    A box is x, y, width, height, with x and y edges already; `iscrowd` marks a box of several objects. The image
    id is COCO's number, padded with zeros to 12 digits as in its file names (an id that is text stays as it is). The
    object id is the annotation's id. Two fields that COCO does not have are read where they are: `is_difficult` marks
    difficult objects, and `object_id` is the object id instead. Outlines (`segmentation`, polygons or run lengths) are
    not read. A file may have gigabytes: it is parsed as a stream, once for each of its lists.

    Tolerated, as pycocotools does: ids with gaps; images without annotations; absent `iscrowd`, `area`,
    `segmentation`, `width`, `height`, `info`, `licenses`. Tolerated and listed, because pycocotools never evaluates
    them: annotations of an image or a category that the file does not define (dropped). Listed too: two categories of
    one name (read as one), and a category of `renamed` that the file does not have.
    Errors: JSON that does not parse; an absent `images`, `annotations` or `categories`; fields of a wrong type; an id
    that occurs twice; a negative width or height; a file name that leaves its folder.

    Args:
        subset_names: Subsets to read. When empty, those of `layout`, else the originals (train2017, val2017,
            train2014, val2014), that are present.
        annotations: The file of a subset, within the root.
        images: The folder of a subset's images, within the root.
        layout: File and folder of images of the subsets that `annotations` and `images` do not fit:
            `{"val": ["labels.json", "pictures"]}`.
        renamed: Names for categories instead of the file's own; several may become one.
    """

    SOURCE: ClassVar[str] = "cocodataset.org (Lin et al., 2014, doi:10.1007/978-3-319-10602-1_48)"

    subset_names: tuple[str, ...] = ()
    annotations: str = "annotations/instances_{subset}.json"
    images: str = "{subset}"
    layout: dict[str, tuple[str, str]] = Field(default_factory=dict)
    renamed: dict[str, str] = Field(default_factory=dict)

    def subsets(self) -> list[str]:
        """Names of the subsets; see `Reader`."""
        known = self.layout or ORIGINALS
        return self._subsets_present(self.subset_names, {subset: [self._placed(subset)[0]] for subset in known})

    def expects(self, subset: str) -> list[Expected]:
        """Files and folders of a subset; see `Reader`."""
        file, folder = self._placed(subset)
        return [
            Expected("annotations", (file,), f"instance annotations of {subset}"),
            Expected("images", (folder,), f"images of {subset}"),
        ]

    def read(self, subset: str) -> Annotations:
        """The annotations of one subset; see `Reader` and, for what is an error, the class."""
        wanted, folder = self._placed(subset)
        path = self._first_present([wanted], subset, "annotations")
        found, file = Collector(self.root), path.relative_to(self.root).as_posix()
        images = self._add_images(found, path, folder)
        names, categories = self._categories(found, path, file)
        _add_objects(found, path, file, images, categories)
        second, parents = self._add_second(found, subset, images, names), self._parents(path)
        fields: dict[str, Any] = {"row": "annotations[{row}]", "box_field": "bbox", "second": second}
        return found.annotations(categories=names, parents=parents, files=[file], **fields)

    def credits(self, subset: str) -> Iterator[tuple[str, Credit]]:
        """Licence and author of each image, as `licenses` and the images' fields give them; see `Reader`."""
        path = inside(self.root, self._placed(subset)[0])
        if not path.exists():
            return
        licences = {identity(one, "id"): one for one in stream(path, "licenses", required=False)}
        for record in stream(path, "images"):
            licence = licences.get(identity(record, "license")) if record.has("license") else None
            yield (
                _image_id(identity(record, "id")),
                Credit(
                    license="" if licence is None else _optional(licence, ("name",)),
                    license_url="" if licence is None else _optional(licence, ("url",)),
                    author=_optional(record, ("author",)),
                    source_url=_optional(record, ("source_url", "flickr_url", "coco_url")),
                ),
            )

    def _placed(self, subset: str) -> tuple[str, str]:
        """The file and the folder of images of a subset, within the root."""
        return self.layout.get(subset) or (fill(self.annotations, subset), fill(self.images, subset))

    def _image_name(self, folder: str) -> Callable[[str], str]:
        """Mapping from the annotations' file names to paths within the folder: the identity."""
        return str

    def _add_second(
        self, found: Collector, subset: str, images: dict[int | str, int], names: list[str]
    ) -> tuple[int, str] | None:
        """Adds objects and categories of a second file; see `Annotations.second`. None: there is no such file."""
        return None

    def _parents(self, path: Path) -> dict[str, list[str]]:
        """Ancestors of each category: none, as COCO's supercategories are groups and not kinds."""
        return {}

    def _add_images(self, found: Collector, path: Path, folder: str) -> dict[int | str, int]:
        """Adds the images; the row of each id."""
        rows: dict[int | str, int] = {}
        file_of = self._image_name(folder)
        for record in stream(path, "images"):
            key = identity(record, "id")
            file = image_file(self.root, folder, file_of(record.text("file_name")), record.location("file_name"))
            size = {"width": record.size("width"), "height": record.size("height")}
            rows[key] = found.add_image(_image_id(key), file, record.location("id"), **size)
        return rows

    def _categories(self, found: Collector, path: Path, file: str) -> tuple[list[str], dict[int | str, int]]:
        """Names of the categories in the file's order, and the row of each id; warns about unused new names."""
        rows: dict[int | str, int] = {}
        names, called, twice = set[str](), dict[str, int](), set[str]()
        for record in stream(path, "categories"):
            key, name = identity(record, "id"), record.text("name").strip()  # Objects365 has "Table Tennis "
            if key in rows:
                raise record.error(f"id {key!r} occurs twice", "id")
            twice |= {name} & names
            names.add(name)
            rows[key] = called.setdefault(self.renamed.get(name, name), len(called))
        for name in sorted(twice):
            kind, problem = "two categories of one name", repr(name)
            found.warnings.append(DataWarning(kind, "dataset", file, None, "categories", problem, "read as one"))
        for name in self.renamed.keys() - names:
            kind, problem = "no category to rename", f"none called {name!r}"
            found.warnings.append(DataWarning(kind, "dataset", file, None, "categories", problem, "ignored"))
        return list(called), rows


def _add_objects(
    found: Collector, path: Path, file: str, images: dict[int | str, int], categories: dict[int | str, int]
) -> None:
    """Adds the objects; warns about each that refers to nothing."""
    seen = set[int]()
    for row, record in enumerate(stream(path, "annotations")):
        field = "object_id" if record.has("object_id") else "id"
        object_id = record.integer(field)
        if object_id in seen:
            raise record.error(f"id {object_id} occurs twice", field)
        seen.add(object_id)
        x, y, width, height = record.numbers("bbox", 4)
        flags = {"is_crowd": record.flag("iscrowd"), "is_difficult": record.flag("is_difficult")}
        image, category = identity(record, "image_id"), identity(record, "category_id")
        if image in images and category in categories:
            box = (x, y, x + width, y + height)
            found.add_object(images[image], box, categories[category], row, object_id=object_id, **flags)
            continue
        field, value = ("image_id", image) if image not in images else ("category_id", category)
        kind = f"object of an unknown {field.removesuffix('_id')}"
        found.warnings.append(DataWarning(kind, "object", file, record.row, field, repr(value), "dropped"))


def identity(record: Record, field: str) -> int | str:
    """An id: an integer or, in files by other tools, text."""
    return record.text(field) if isinstance(record.values.get(field), str) else record.integer(field)


def _image_id(key: int | str) -> str:
    """The tables' name of an image: COCO's number as its file names have it."""
    return key if isinstance(key, str) else f"{key:012d}"


def _optional(record: Record, fields: tuple[str, ...]) -> str:
    """The first of several texts that a record has; "" where it has none."""
    return next((record.text(field) for field in fields if record.values.get(field)), "")
