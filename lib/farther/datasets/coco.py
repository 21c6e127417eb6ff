"""COCO: one JSON file per subset (Lin et al., 2014; the data format on cocodataset.org)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import ClassVar

from pydantic import Field
from pydantic.dataclasses import dataclass

from farther.datasets.base import (
    AnnotatedImages,
    Annotations,
    Credit,
    DataWarning,
    Expected,
    Location,
    ObjectRows,
    Reader,
    fill,
    image_file,
    register,
)
from farther.datasets.records import Record, read_json
from farther.errors import DataError
from farther.registry import STRICT
from farther.tables.files import inside

ORIGINALS = ("train2017", "val2017", "train2014", "val2014")

#: Fields that are dropped while parsing; outlines take several times the memory of all the rest.
UNREAD = ("segmentation", "area", "license", "url", "coco_url", "flickr_url", "date_captured", "isfake", "isreflected")

#: Fields without licences and authors.
UNCREDITED = ("segmentation", "bbox", "area", "iscrowd", "image_id", "category_id")


@register("coco")
@dataclass(config=STRICT, kw_only=True)
class COCO(Reader):
    """COCO instances, and any file of that form.

    A box is x, y, width, height, with x and y edges already; `iscrowd` says that it holds several objects. The image
    id is COCO's number, padded with zeros to 12 digits as in its file names (an id that is text stays as it is). The
    object id is the annotation's id. Two fields that COCO does not have are read where they are: `is_difficult` marks
    difficult objects, and `object_id` is the object id instead. Outlines (`segmentation`, polygons or run lengths) are
    not read.

    Tolerated, as pycocotools does: ids with gaps; images without annotations; absent `iscrowd`, `area`,
    `segmentation`, `width`, `height`, `info`, `licenses`. Tolerated and listed, because pycocotools never evaluates
    them: annotations of an image or a category that the file does not define (dropped). Listed too: a category of
    `renamed` that the file does not have.
    Errors: JSON that does not parse; an absent `images`, `annotations` or `categories`; fields of a wrong type; an id
    that occurs twice; two categories of one name; a negative width or height; a file name that leaves its folder.

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
        content = read_json(path, without=UNREAD)
        if not isinstance(content, dict):
            raise DataError(
                f"expected an object with images, annotations and categories, found a {_kind(content)}", file=path
            )
        whole = Record(content, path)
        file = path.relative_to(self.root).as_posix()
        categories, category_rows, warnings = self._categories(whole, file)
        images, image_rows = self._images(whole, folder)
        objects, dropped = _objects(whole, file, image_rows, category_rows)
        return Annotations(
            images=images,
            objects=objects.columns(),
            categories=categories,
            warnings=warnings + dropped,
            files=[file],
            row="annotations[{row}]",
            box_field="bbox",
            root=self.root,
        )

    def credits(self, subset: str) -> Iterator[tuple[str, Credit]]:
        """Licence and author of each image, as `licenses` and the images' fields say them; see `Reader`."""
        path = inside(self.root, self._placed(subset)[0])
        whole = Record(read_json(path, without=UNCREDITED), path) if path.exists() else Record({"images": []}, path)
        licences = {_identity(one, "id"): one for one in whole.records("licenses")} if whole.has("licenses") else {}
        for record in whole.records("images"):
            licence = licences.get(_identity(record, "license")) if record.has("license") else None
            yield (
                _image_id(_identity(record, "id")),
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

    def _images(self, whole: Record, folder: str) -> tuple[AnnotatedImages, dict[int | str, int]]:
        """The images, and the row of each id."""
        rows: dict[int | str, int] = {}
        images, padded = list[tuple[str, str, int, int]](), set[str]()
        file_of = self._image_name(folder)
        for record in whole.records("images"):
            key = _identity(record, "id")
            image_id = _image_id(key)
            if image_id in padded:
                raise record.error(f"id {key!r} occurs twice", "id")
            padded.add(image_id)
            rows[key] = len(images)
            location = Location(record.file, record.row, "file_name")
            file = image_file(self.root, folder, file_of(record.text("file_name")), location)
            images.append((image_id, file, record.size("width"), record.size("height")))
        return AnnotatedImages.of(images), rows

    def _categories(self, whole: Record, file: str) -> tuple[list[str], dict[int | str, int], list[DataWarning]]:
        """Names of the categories in the file's order, the row of each id, and warnings about unused new names."""
        rows: dict[int | str, int] = {}
        names, called = dict[str, None](), list[str]()
        for record in whole.records("categories"):
            key, name = _identity(record, "id"), record.text("name")
            if key in rows:
                raise record.error(f"id {key!r} occurs twice", "id")
            if name in names:
                raise record.error(f"{name!r} is the name of another category too", "name")
            names[name] = None
            new = self.renamed.get(name, name)
            if new not in called:
                called.append(new)
            rows[key] = called.index(new)
        unused = [
            DataWarning(
                "no category to rename", "dataset", file, None, "categories", f"none called {name!r}", "ignored"
            )
            for name in self.renamed
            if name not in names
        ]
        return called, rows, unused


def _objects(
    whole: Record, file: str, image_rows: dict[int | str, int], category_rows: dict[int | str, int]
) -> tuple[ObjectRows, list[DataWarning]]:
    """The objects, and a warning for each that refers to nothing."""
    objects, warnings, seen = ObjectRows(), list[DataWarning](), set[int]()
    for row, record in enumerate(whole.records("annotations")):
        field = "object_id" if record.has("object_id") else "id"
        object_id = record.integer(field)
        if object_id in seen:
            raise record.error(f"id {object_id} occurs twice", field)
        seen.add(object_id)
        x, y, width, height = record.numbers("bbox", 4)
        flags = {"is_crowd": record.flag("iscrowd"), "is_difficult": record.flag("is_difficult")}
        image, category = _identity(record, "image_id"), _identity(record, "category_id")
        if image not in image_rows:
            kind, field, found = "object of an unknown image", "image_id", image
        elif category not in category_rows:
            kind, field, found = "object of an unknown category", "category_id", category
        else:
            box = (x, y, x + width, y + height)
            objects.add(image_rows[image], box, category_rows[category], row, object_id=object_id, **flags)
            continue
        warnings.append(DataWarning(kind, "object", file, record.row, field, repr(found), "dropped"))
    return objects, warnings


def _identity(record: Record, field: str) -> int | str:
    """An id: an integer or, in files by other tools, text."""
    return record.text(field) if isinstance(record.values.get(field), str) else record.integer(field)


def _image_id(key: int | str) -> str:
    """The tables' name of an image: COCO's number as its file names have it."""
    return key if isinstance(key, str) else f"{key:012d}"


def _optional(record: Record, fields: tuple[str, ...]) -> str:
    """The first of several texts that a record has; "" where it has none."""
    return next((record.text(field) for field in fields if record.values.get(field)), "")


def _kind(value: object) -> str:
    return {list: "list", str: "text", type(None): "null"}.get(type(value), "number")
