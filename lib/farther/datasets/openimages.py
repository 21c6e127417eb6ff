"""OpenImages V4 to V7: boxes in CSV, in fractions of the image; classes in a hierarchy (Kuznetsova et al., 2020)."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.csv as arrow_csv
from pydantic.dataclasses import dataclass
from tqdm import tqdm

from farther.datasets.base import (
    AnnotatedImages,
    AnnotatedObjects,
    AnnotatedOn,
    Annotations,
    Credit,
    DataWarning,
    Expected,
    Reader,
    fill_all,
    image_file,
    register,
)
from farther.datasets.records import Location, read_record
from farther.errors import DataError
from farther.registry import STRICT
from farther.tables.files import csv_rows, inside, is_present, open_binary
from farther.tables.folders import entries

EDGES = ("XMin", "YMin", "XMax", "YMax")

#: A box: line, image, edges in fractions of the image, class (null without a description), and
#: whether it is a group.
_BOXES = pl.Schema(
    [
        ("row", pl.Int64),
        ("ImageID", pl.Categorical()),
        *((edge, pl.Float64) for edge in EDGES),
        ("category", pl.Int32),
        ("group", pl.Boolean),
    ]
)

#: Bytes of CSV that are parsed at once: memory while reading does not grow with the file.
BLOCK = 16 * 2**20


@register("openimages")
@dataclass(config=STRICT, kw_only=True)
class OpenImages(Reader):
    """OpenImages boxes.

    Coordinates are fractions of the image's width and height, which only the image itself tells.
    `IsGroupOf` marks a box of several objects. Columns may come in any order and others may be
    there (V4 to V7 differ). Images are those in the folders, with boxes or without, and those that
    a box names. The image id is OpenImages' own; ids are sorted. Image-level labels are not read.
    Ancestors of a class are what it is a kind of (`Subcategory`) or a part of (`Part`: a face is a
    part of a person).

    Tolerated: -1 (unknown) in `IsGroupOf`, and its absence, both as no group; an absent hierarchy
    file (listed; no ancestors); a header in the class descriptions (V7 has one). Tolerated and
    listed: a box of a class without description (dropped), as the evaluation of OpenImages counts
    described classes only. Errors: an absent column; boxes of which none is of an image that is
    there; a coordinate that is not a number; XMax below XMin; a row of another length than the
    header; an id that leaves the folder; a class or an image file that occurs twice.

    The CSV is read block by block; a column takes a few bytes per box (the training set has 14
    million). `select: present` takes a part of the images.

    Args:
        boxes: The CSV of a subset's boxes, within the root: the first of these that exists.
        classes: The CSV of class names: the first of these that exists.
        hierarchy: The JSON of the class hierarchy.
        images: Folders of a subset's images; the training set comes in several.
        extension: Extension of the image files.
        select: `annotated` reads all images; `present` those whose files are in the folders. Boxes
            of others are then left out, and counted in one warning.
        orientation: The boxes refer to stored pixels: files of the dataset have no EXIF data, but
            photographs that were downloaded again from their source may have
            (storage.googleapis.com/openimages/web/2018-05-17-rotation-information.html).
        credit_lists: The CSV with licence and author of each image: the first of these that exists.
    """

    SOURCE: ClassVar[str] = (
        "storage.googleapis.com/openimages (Kuznetsova et al., 2020, doi:10.1007/s11263-020-01316-z)"
    )

    ORIGINALS: ClassVar[tuple[str, ...]] = ("train", "validation", "test")

    boxes: tuple[str, ...] = (
        "{subset}-annotations-bbox.csv",
        "oidv6-{subset}-annotations-bbox.csv",
    )
    classes: tuple[str, ...] = (
        "class-descriptions-boxable.csv",
        "oidv7-class-descriptions-boxable.csv",
    )
    hierarchy: str = "bbox_labels_600_hierarchy.json"
    images: tuple[str, ...] = ("{subset}",)
    extension: str = ".jpg"
    select: Literal["annotated", "present"] = "annotated"
    orientation: AnnotatedOn = "stored"
    credit_lists: tuple[str, ...] = (
        "{subset}-images-with-rotation.csv",
        "{subset}-images-boxable-with-rotation.csv",
        "oidv6-{subset}-images-with-labels-with-rotation.csv",
        "image_ids_and_rotation.csv",
    )

    def expects(self, subset: str) -> list[Expected]:
        """Files and folders of a subset; see `Reader`."""
        boxes, classes, images = (
            fill_all(paths, subset) for paths in (self.boxes, self.classes, self.images)
        )
        return [
            Expected("boxes", boxes, f"'Boxes' of the subset {subset}"),
            Expected("class names", classes, "'Class Names' of the boxable classes"),
            Expected(
                "class hierarchy", (self.hierarchy,), "'Hierarchy' of the 600 boxable classes"
            ),
            *(
                Expected("images", (folder,), f"images of the subset {subset}, by their ids")
                for folder in images
            ),
        ]

    def read(self, subset: str) -> Annotations:
        """The annotations of one subset; see `Reader` and, for what is an error, the class."""
        names = _class_names(self._first_present(self.classes, subset, "classes"))
        path = self._first_present(self.boxes, subset, "boxes")
        folders = fill_all(self.images, subset)
        files = self._image_files(folders)
        file = path.relative_to(self.root).as_posix()
        boxes, unknown, left_out = _read_boxes(
            path, names, list(files) if self.select == "present" else None
        )
        if files and left_out and not boxes.height:
            problem = f"none of the {left_out} boxes is of one of the {len(files)} images in {', '.join(folders)}"
            raise DataError(
                f"{problem}, such as {min(files)!r}: are they of this subset?",
                file=path,
                field="ImageID",
            )
        images = self._images(path, folders[0], files, boxes)
        parents, warnings = dict[str, list[str]](), list[DataWarning]()
        hierarchy = inside(self.root, self.hierarchy)
        if is_present(hierarchy):
            parents = _ancestors(hierarchy, names)
        else:
            action = "no class has ancestors"
            warnings.append(
                DataWarning(
                    "no class hierarchy", "dataset", self.hierarchy, None, None, "no file", action
                )
            )
        for row, label in unknown:
            kind = "object of an unknown category"
            warnings.append(
                DataWarning(kind, "object", file, str(row), "LabelName", label, "dropped")
            )
        if left_out:
            kind = "boxes of images that are not there"
            warnings.append(
                DataWarning(kind, "dataset", file, None, "ImageID", f"{left_out} boxes", "left out")
            )
        return Annotations(
            images=images,
            objects=_objects(boxes, images),
            categories=list(names.values()),
            parents=parents,
            warnings=warnings,
            files=[file],
            row="{row}",
            box_field="XMin, YMin, XMax, YMax",
            root=self.root,
        )

    def credits(self, subset: str) -> Iterator[tuple[str, Credit]]:
        """Licence and author of each image that OpenImages' list of images names; nothing without it; see `Reader`."""
        paths = [inside(self.root, path) for path in fill_all(self.credit_lists, subset)]
        path = next((path for path in paths if is_present(path)), None)
        rows = iter(()) if path is None else csv_rows(path)
        header = next(rows, [])
        for row in rows:
            known = defaultdict(str, zip(header, row, strict=False))
            licence = known["License"]
            yield (
                known["ImageID"],
                Credit(licence, licence, known["Author"], known["OriginalLandingURL"]),
            )

    def _images(
        self, path: Path, folder: str, present: dict[str, str], boxes: pl.DataFrame
    ) -> AnnotatedImages:
        """The images of folders and boxes, sorted."""
        found = dict(present)
        named = boxes.select("row", "ImageID").unique("ImageID", keep="first", maintain_order=True)
        for row, image_id in named.cast({"ImageID": pl.String}).iter_rows():
            if image_id not in found:
                location = Location(path, str(row), "ImageID")
                found[image_id] = image_file(self.root, folder, image_id + self.extension, location)
        ids = sorted(found)
        unknown = np.zeros(len(ids), dtype=np.int64)
        files = np.array([found[image_id] for image_id in ids], dtype=object)
        return AnnotatedImages(np.array(ids, dtype=object), files, unknown, unknown)

    def _image_files(self, folders: Sequence[str]) -> dict[str, str]:
        """Path within the root of each image file, by image id."""
        found: dict[str, str] = {}
        for folder in folders:
            path = inside(self.root, folder)
            if not path.is_dir():
                raise DataError(
                    "the folder of images does not exist; parameter 'images' names it", file=path
                )
            for entry in entries(path):
                if entry.name.endswith(self.extension) and not entry.name.startswith("."):
                    image_id = entry.name.removesuffix(self.extension)
                    if image_id in found:
                        raise DataError(f"the image is also in {found[image_id]}", file=entry.path)
                    found[image_id] = inside(folder, entry.name).as_posix()
        return found


def _read_boxes(
    path: Path, names: dict[str, str], only: list[str] | None
) -> tuple[pl.DataFrame, list[tuple[int, str]], int]:
    """The boxes of a CSV, read block by block.

    Args:
        names: Name of each class by its label.
        only: The images whose boxes are wanted; None for all.

    Returns:
        A frame of `_BOXES`, one row per wanted box; line and label of the boxes whose class has no
        description; and the number of boxes of images that are not wanted.
    """
    numbers = {"LabelName": list(names), "category": range(len(names))}
    categories = pl.DataFrame(numbers, schema={"LabelName": pl.String, "category": pl.Int32})
    wanted = None if only is None else pl.Series(only, dtype=pl.String).implode()
    parts, unknown, left_out, line = (
        [pl.DataFrame(schema=_BOXES)],
        list[tuple[int, str]](),
        0,
        2,
    )  # after the header
    for batch in _batches(path):
        frame = pl.DataFrame(batch).with_row_index("row", offset=line)
        line += frame.height
        if "IsGroupOf" not in frame.columns:
            frame = frame.with_columns(IsGroupOf=0)
        wrong = (
            frame.filter(~pl.col("IsGroupOf").is_between(-1, 1)).select("row", "IsGroupOf").head(1)
        )
        for row, value in wrong.iter_rows():
            problem = f"expected 1, 0 or -1 (unknown), found {value}"
            raise DataError(problem, file=path, row=row, field="IsGroupOf")
        if wanted is not None:
            left_out += frame.height
            frame = frame.filter(pl.col("ImageID").is_in(wanted))
            left_out -= frame.height
        frame = frame.join(categories, on="LabelName", how="left", maintain_order="left")
        unknown += frame.filter(pl.col("category").is_null()).select("row", "LabelName").rows()
        frame = frame.with_columns(group=pl.col("IsGroupOf") == 1)
        parts.append(frame.select(pl.col(name).cast(kind) for name, kind in _BOXES.items()))
    return pl.concat(parts), unknown, left_out


def _objects(boxes: pl.DataFrame, images: AnnotatedImages) -> AnnotatedObjects:
    """The boxes whose class has a description."""
    ids = pl.Series("ImageID", images.image_id, dtype=pl.String).cast(pl.Categorical)
    rows = pl.DataFrame([ids]).with_row_index("image")
    known = boxes.drop_nulls("category").join(rows, on="ImageID", how="left", maintain_order="left")
    return AnnotatedObjects(
        image=known["image"].cast(pl.Int64).to_numpy(),
        box=np.ascontiguousarray(known.select(EDGES).to_numpy()),
        category=known["category"].to_numpy(),
        object_id=np.arange(known.height, dtype=np.int64),
        row=known["row"].to_numpy(),
        is_crowd=known["group"].to_numpy(),
        is_difficult=np.zeros(known.height, dtype=bool),
        unit="image",
    )


def _batches(path: Path) -> Iterator[pa.RecordBatch]:
    """The wanted columns of a CSV of boxes, block by block, with a progress bar."""
    wanted = {
        "ImageID": pa.string(),
        "LabelName": pa.string(),
        **dict.fromkeys(EDGES, pa.float64()),
    }
    present = next(csv_rows(path), [])
    for column in wanted:
        if present.count(column) != 1:
            problem = f"expected one such column, found {present.count(column)} among {', '.join(present) or 'none'}"
            raise DataError(problem, file=path, row=1, field=column)
    if "IsGroupOf" in present:
        wanted["IsGroupOf"] = pa.int8()
    convert = arrow_csv.ConvertOptions(
        include_columns=list(wanted), column_types=wanted, null_values=[], strings_can_be_null=False
    )
    read = arrow_csv.ReadOptions(block_size=BLOCK, use_threads=False)
    bar = tqdm(
        None, path.name, path.stat().st_size, unit="B", unit_scale=True, leave=False, disable=None
    )
    try:
        with (
            open_binary(path) as file,
            bar,
            arrow_csv.open_csv(file, read, None, convert) as reader,
        ):
            for batch in reader:
                yield batch
                bar.update(file.tell() - bar.n)
    except pa.ArrowInvalid as error:  # its message says row and column
        row, column = (
            re.search(rf"{name} #(\d+): ", str(error)) for name in ("Row", "In CSV column")
        )
        problem = re.sub(r"In CSV column #\d+: |Row #\d+: ", "", str(error))
        field = None if column is None else present[int(column[1])]
        raise DataError(
            problem, file=path, row=None if row is None else row[1], field=field
        ) from None


def _class_names(path: Path) -> dict[str, str]:
    """Name of each class by its label ("/m/01g317": "Person"), in the file's order."""
    names, taken = dict[str, str](), set[str]()
    for line, row in enumerate(csv_rows(path), start=1):
        if row in ([], ["LabelName", "DisplayName"]):
            continue
        if len(row) != 2 or not all(row):
            raise DataError(
                f"expected a label and a name, found {','.join(row)!r}", file=path, row=line
            )
        label, name = row
        for field, value, known in (("LabelName", label, names), ("DisplayName", name, taken)):
            if value in known:
                raise DataError(
                    f"{value!r} is in an earlier row too", file=path, row=line, field=field
                )
        names[label] = name
        taken.add(name)
    return names


def _ancestors(path: Path, names: dict[str, str]) -> dict[str, list[str]]:
    """Named ancestors of each class, nearest first."""
    above: dict[str, list[str]] = {}
    open_nodes = [read_record(path)]
    while open_nodes:
        node = open_nodes.pop()
        for field in ("Subcategory", "Part"):
            for child in node.records(field) if node.has(field) else ():
                wholes = above.setdefault(child.text("LabelName"), [])
                if node.text("LabelName") not in wholes:
                    wholes.append(node.text("LabelName"))
                open_nodes.append(child)
    return {names[label]: line for label in names if (line := _line_of(label, above, names))}


def _line_of(label: str, above: dict[str, list[str]], names: dict[str, str]) -> list[str]:
    line = list(above.get(label, ()))
    for ancestor in line:  # grows while it is walked: nearest first
        line.extend(
            other for other in above.get(ancestor, ()) if other not in line and other != label
        )
    return [names[ancestor] for ancestor in line if ancestor in names and ancestor != label]
