"""COCO: one JSON file a subset (Lin et al., 2014; the data format on cocodataset.org)."""

from __future__ import annotations

from pydantic.dataclasses import dataclass

from farther.datasets.base import (
    AnnotatedImages,
    Annotations,
    DataWarning,
    ObjectRows,
    Place,
    Reader,
    fill,
    image_file,
    register,
)
from farther.datasets.records import Record, read_json
from farther.errors import DataError
from farther.registry import STRICT

ORIGINALS = ("train2017", "val2017", "train2014", "val2014")


@register("coco")
@dataclass(config=STRICT, kw_only=True)
class COCO(Reader):
    """COCO instances.

    A box is x, y, width, height, with x and y edges already; `iscrowd` says that it holds several objects. The image
    id is COCO's number, padded with zeros to 12 digits as in its file names (an id that is text stays as it is). The
    object id is the annotation's id. Outlines (`segmentation`, polygons or run lengths) are not read.

    Tolerated, as pycocotools does: ids with gaps; images without annotations; absent `iscrowd`, `area`,
    `segmentation`, `width`, `height`, `info`, `licenses`. Tolerated and listed, because pycocotools never evaluates
    them: annotations of an image or a category that the file does not define (dropped).
    Errors: JSON that does not parse; an absent `images`, `annotations` or `categories`; fields of a wrong type; an id
    that occurs twice; two categories of one name; a negative width or height; a file name that leaves its folder.

    Args:
        subset_names: Subsets to read. When empty, the originals (train2017, val2017, train2014, val2014) that are
            present.
        annotations: The file of a subset, within the root.
        images: The folder of a subset's images, within the root.
    """

    subset_names: tuple[str, ...] = ()
    annotations: str = "annotations/instances_{subset}.json"
    images: str = "{subset}"

    def subsets(self) -> list[str]:
        """Names of the subsets; see `Reader`."""
        return self._subsets_present(self.subset_names, ORIGINALS, [self.annotations])

    def read(self, subset: str) -> Annotations:
        """The annotations of one subset; see `Reader` and, for what is an error, the class."""
        path = self._first_present([self.annotations], subset, "annotations")
        content = read_json(path, without=("segmentation",))
        if not isinstance(content, dict):
            raise DataError(
                f"expected an object with images, annotations and categories, found a {_kind(content)}", file=path
            )
        whole = Record(content, path)
        categories, category_rows = _categories(whole)
        images, image_rows = self._images(whole, fill(self.images, subset))
        file = path.relative_to(self.root).as_posix()
        objects, warnings = _objects(whole, file, image_rows, category_rows)
        return Annotations(
            images=images,
            objects=objects.columns(),
            categories=categories,
            warnings=warnings,
            files=[file],
            row="annotations[{row}]",
            box_field="bbox",
            root=self.root,
        )

    def _images(self, whole: Record, folder: str) -> tuple[AnnotatedImages, dict[int | str, int]]:
        """The images, and the row of each id."""
        rows: dict[int | str, int] = {}
        images, padded = list[tuple[str, str, int, int]](), set[str]()
        for record in whole.records("images"):
            key = _identity(record, "id")
            image_id = key if isinstance(key, str) else f"{key:012d}"
            if image_id in padded:
                raise record.error(f"id {key!r} occurs twice", "id")
            padded.add(image_id)
            rows[key] = len(images)
            place = Place(record.file, record.row, "file_name")
            file = image_file(self.root, folder, record.text("file_name"), place)
            images.append((image_id, file, record.size("width"), record.size("height")))
        return AnnotatedImages.of(images), rows


def _categories(whole: Record) -> tuple[list[str], dict[int | str, int]]:
    """Names of the categories in the file's order, and the row of each id."""
    names: list[str] = []
    rows: dict[int | str, int] = {}
    for record in whole.records("categories"):
        key, name = _identity(record, "id"), record.text("name")
        if key in rows:
            raise record.error(f"id {key!r} occurs twice", "id")
        if name in names:
            raise record.error(f"{name!r} is the name of another category too", "name")
        rows[key] = len(names)
        names.append(name)
    return names, rows


def _objects(
    whole: Record, file: str, image_rows: dict[int | str, int], category_rows: dict[int | str, int]
) -> tuple[ObjectRows, list[DataWarning]]:
    """The objects, and a warning for each that refers to nothing."""
    objects, warnings, seen = ObjectRows(), list[DataWarning](), set[int]()
    for row, record in enumerate(whole.records("annotations")):
        object_id = record.integer("id")
        if object_id in seen:
            raise record.error(f"id {object_id} occurs twice", "id")
        seen.add(object_id)
        x, y, width, height = record.numbers("bbox", 4)
        is_crowd = record.flag("iscrowd")
        image, category = _identity(record, "image_id"), _identity(record, "category_id")
        if image not in image_rows:
            kind, field, found = "object of an unknown image", "image_id", image
        elif category not in category_rows:
            kind, field, found = "object of an unknown category", "category_id", category
        else:
            box = (x, y, x + width, y + height)
            objects.add(image_rows[image], box, category_rows[category], row, object_id=object_id, is_crowd=is_crowd)
            continue
        warnings.append(DataWarning(kind, "object", file, record.row, field, repr(found), "dropped"))
    return objects, warnings


def _identity(record: Record, field: str) -> int | str:
    """An id: a whole number or, in files made elsewhere, text."""
    return record.text(field) if isinstance(record.values.get(field), str) else record.integer(field)


def _kind(value: object) -> str:
    return {list: "list", str: "text", type(None): "null"}.get(type(value), "number")
