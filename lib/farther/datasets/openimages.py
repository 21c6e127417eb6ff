"""OpenImages V4 to V7 (Kuznetsova et al., 2020): boxes in CSV, and classes in a hierarchy.

Edges are fractions of the image.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass as plain
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
from farther.naming.registry import STRICT
from farther.tables.endings import with_lower_ending
from farther.tables.files import csv_rows, inside, is_present, open_binary
from farther.tables.folders import entries

EDGES = ("XMin", "YMin", "XMax", "YMax")

#: Columns of boxes: line, image, edges in fractions of the image, class (null without a
#: description), and whether the box is a group.
_BOXES = pl.Schema(
    [
        ("row", pl.Int64),
        ("ImageID", pl.Categorical()),
        *((edge, pl.Float64) for edge in EDGES),
        ("category", pl.Int32),
        ("group", pl.Boolean),
    ]
)

#: Number of bytes of CSV that are parsed at once: memory while reading does not grow with the file.
BLOCK = 16 * 2**20


@plain(frozen=True)
class _Boxes:
    """The boxes of a CSV.

    Args:
        frame: One row per box, with the columns of `_BOXES`.
        unknown_labels: Line and label of each box whose class has no description.
        left_out: Number of boxes of images that are not read.
    """

    frame: pl.DataFrame
    unknown_labels: list[tuple[int, str]]
    left_out: int


@register("openimages")
@dataclass(config=STRICT, kw_only=True)
class OpenImages(Reader):
    """OpenImages boxes.

    Coordinates are fractions of the image's width and height, which are known from the image only.
    `IsGroupOf` marks a box of several objects. Columns may have any order and there may be others
    (V4 to V7 differ). Images are those in the folders, with boxes or without, and those that a box
    names. The image id is OpenImages' own; ids are sorted. Image-level labels are not read.
    Ancestors of a class are what it is a kind of (`Subcategory`) or a part of (`Part`: a face is a
    part of a person).

    Tolerated: -1 (unknown) in `IsGroupOf`, and its absence, both as no group; an absent hierarchy
    file (listed; no ancestors); a header in the class descriptions (V7 has one). Tolerated and
    listed: a box of a class without description (dropped), as the evaluation of OpenImages counts
    described classes only. Errors: an absent column; boxes of which none is of a present image; a
    coordinate that is not a number; XMax below XMin; a row of another length than the
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
        "storage.googleapis.com/openimages "
        "(Kuznetsova et al., 2020, doi:10.1007/s11263-020-01316-z)"
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
        expected = [
            Expected("boxes", fill_all(self.boxes, subset), f"'Boxes' of the subset {subset}"),
            Expected(
                "class names",
                fill_all(self.classes, subset),
                "'Class Names' of the boxable classes",
            ),
            Expected(
                "class hierarchy", (self.hierarchy,), "'Hierarchy' of the 600 boxable classes"
            ),
        ]
        for folder in fill_all(self.images, subset):
            source = f"images of the subset {subset}, by their ids"
            expected.append(Expected("images", (folder,), source))
        return expected

    def read(self, subset: str) -> Annotations:
        """The annotations of one subset; see `Reader` and, for what is an error, the class."""
        name_by_label = _class_names(self._first_present(self.classes, subset, "classes"))
        path = self._first_present(self.boxes, subset, "boxes")
        folders = fill_all(self.images, subset)
        file_by_id = self._image_files(folders)
        image_ids = list(file_by_id) if self.select == "present" else None
        boxes = _read_boxes(path, list(name_by_label), image_ids)
        if file_by_id and boxes.left_out and not boxes.frame.height:
            raise DataError(
                f"none of the {boxes.left_out} boxes is of one of the {len(file_by_id)} images in "
                f"{', '.join(folders)}, such as {min(file_by_id)!r}: are they of this subset?",
                file=path,
                field="ImageID",
            )
        images = self._images(path, folders[0], file_by_id, boxes.frame)

        warnings: list[DataWarning] = []
        parents: dict[str, list[str]] = {}
        hierarchy = inside(self.root, self.hierarchy)
        if is_present(hierarchy):
            parents = _ancestors(hierarchy, name_by_label)
        else:
            warnings.append(_no_hierarchy_warning(self.hierarchy))
        file = path.relative_to(self.root).as_posix()
        warnings += _box_warnings(boxes, file)
        return Annotations(
            images=images,
            objects=_objects(boxes.frame, images),
            categories=list(name_by_label.values()),
            parents=parents,
            warnings=warnings,
            files=[file],
            row="{row}",
            box_field="XMin, YMin, XMax, YMax",
            root=self.root,
        )

    def credits(self, subset: str) -> Iterator[tuple[str, Credit]]:
        """Credit of each image that OpenImages' list of images names; see `Reader`."""
        path = self._credit_list(subset)
        if path is None:
            return
        rows = csv_rows(path)
        header = next(rows, [])
        for row in rows:
            values = defaultdict(str, zip(header, row, strict=False))
            credit = Credit(
                license=values["License"],
                license_url=values["License"],
                author=values["Author"],
                source_url=values["OriginalLandingURL"],
            )
            yield values["ImageID"], credit

    def _credit_list(self, subset: str) -> Path | None:
        """The list of images with licences and authors; None where there is none."""
        paths = [inside(self.root, path) for path in fill_all(self.credit_lists, subset)]
        for path in paths:
            if is_present(path):
                return path
        return None

    def _images(
        self, path: Path, folder: str, file_by_id: dict[str, str], boxes: pl.DataFrame
    ) -> AnnotatedImages:
        """The images of folders and boxes, sorted by their ids.

        Args:
            path: The CSV of the boxes, for messages.
            folder: Folder of images that exist only in the CSV, within the root.
            file_by_id: Path within the root of each image file, by image id.
            boxes: The boxes; see `_BOXES`.
        """
        file_by_id = dict(file_by_id)
        first_boxes = boxes.select("row", "ImageID").unique(
            "ImageID", keep="first", maintain_order=True
        )
        for row, image_id in first_boxes.cast({"ImageID": pl.String}).iter_rows():
            if image_id not in file_by_id:
                location = Location(path, str(row), "ImageID")
                name = image_id + self.extension
                file_by_id[image_id] = image_file(self.root, folder, name, location)

        image_ids = sorted(file_by_id)
        unknown_size = np.zeros(len(image_ids), dtype=np.int64)
        return AnnotatedImages(
            image_id=np.array(image_ids, dtype=object),
            file=np.array([file_by_id[image_id] for image_id in image_ids], dtype=object),
            width=unknown_size,
            height=unknown_size,
        )

    def _image_files(self, folders: Sequence[str]) -> dict[str, str]:
        """Path within the root of each image file, by image id.

        Raises:
            DataError: a folder does not exist, or an image is in two folders.
        """
        file_by_id: dict[str, str] = {}
        for folder in folders:
            path = inside(self.root, folder)
            if not path.is_dir():
                raise DataError(
                    "the folder of images does not exist; parameter 'images' names it", file=path
                )
            for entry in entries(path):
                name = with_lower_ending(entry.name)
                if not name.endswith(self.extension.lower()) or name.startswith("."):
                    continue
                image_id = name[: -len(self.extension)]
                if image_id in file_by_id:
                    raise DataError(f"the image is also in {file_by_id[image_id]}", file=entry.path)
                file_by_id[image_id] = inside(folder, entry.name).as_posix()
        return file_by_id


def _no_hierarchy_warning(file: str) -> DataWarning:
    """A warning about an absent file of the class hierarchy."""
    return DataWarning(
        kind="no class hierarchy",
        about="dataset",
        file=file,
        row=None,
        field=None,
        found="no file",
        action="no class has ancestors",
    )


def _box_warnings(boxes: _Boxes, file: str) -> list[DataWarning]:
    """Warnings about boxes that are dropped or left out.

    Args:
        boxes: The boxes of a CSV.
        file: The CSV within the root.
    """
    warnings = [
        DataWarning(
            kind="object of an unknown category",
            about="object",
            file=file,
            row=str(row),
            field="LabelName",
            found=label,
            action="dropped",
        )
        for row, label in boxes.unknown_labels
    ]
    if boxes.left_out:
        warnings.append(
            DataWarning(
                kind="boxes of images that are not there",
                about="dataset",
                file=file,
                row=None,
                field="ImageID",
                found=f"{boxes.left_out} boxes",
                action="left out",
            )
        )
    return warnings


def _read_boxes(path: Path, labels: list[str], image_ids: list[str] | None) -> _Boxes:
    """The boxes of a CSV, read block by block.

    Args:
        path: The CSV.
        labels: Labels of the classes; the index of a label is the category.
        image_ids: The images whose boxes are read; None for all.
    """
    categories = pl.DataFrame(
        {"LabelName": labels, "category": range(len(labels))},
        schema={"LabelName": pl.String, "category": pl.Int32},
    )
    selected_ids = None
    if image_ids is not None:
        selected_ids = pl.Series(image_ids, dtype=pl.String).implode()

    frames = [pl.DataFrame(schema=_BOXES)]
    unknown_labels: list[tuple[int, str]] = []
    left_out = 0
    line = 2  # after the header
    for batch in _batches(path):
        frame = pl.DataFrame(batch).with_row_index("row", offset=line)
        line += frame.height
        if "IsGroupOf" not in frame.columns:
            frame = frame.with_columns(IsGroupOf=0)
        _refuse_invalid_groups(frame, path)
        if selected_ids is not None:
            selected = frame.filter(pl.col("ImageID").is_in(selected_ids))
            left_out += frame.height - selected.height
            frame = selected
        frame = frame.join(categories, on="LabelName", how="left", maintain_order="left")
        unknown = frame.filter(pl.col("category").is_null())
        unknown_labels += unknown.select("row", "LabelName").rows()
        frame = frame.with_columns(group=pl.col("IsGroupOf") == 1)
        frames.append(frame.select(pl.col(name).cast(dtype) for name, dtype in _BOXES.items()))
    return _Boxes(pl.concat(frames), unknown_labels, left_out)


def _refuse_invalid_groups(frame: pl.DataFrame, path: Path) -> None:
    """Refuses a value of `IsGroupOf` other than 1, 0 and -1."""
    is_invalid = ~pl.col("IsGroupOf").is_between(-1, 1)
    invalid = frame.filter(is_invalid).select("row", "IsGroupOf").head(1)
    for row, value in invalid.iter_rows():
        problem = f"expected 1, 0 or -1 (unknown), found {value}"
        raise DataError(problem, file=path, row=row, field="IsGroupOf")


def _objects(boxes: pl.DataFrame, images: AnnotatedImages) -> AnnotatedObjects:
    """The boxes whose class has a description."""
    image_ids = pl.Series("ImageID", images.image_id, dtype=pl.String).cast(pl.Categorical)
    rows = pl.DataFrame([image_ids]).with_row_index("image")
    described = boxes.drop_nulls("category")
    described = described.join(rows, on="ImageID", how="left", maintain_order="left")
    return AnnotatedObjects(
        image=described["image"].cast(pl.Int64).to_numpy(),
        box=np.ascontiguousarray(described.select(EDGES).to_numpy()),
        category=described["category"].to_numpy(),
        object_id=np.arange(described.height, dtype=np.int64),
        row=described["row"].to_numpy(),
        is_crowd=described["group"].to_numpy(),
        is_difficult=np.zeros(described.height, dtype=bool),
        unit="image",
    )


def _batches(path: Path) -> Iterator[pa.RecordBatch]:
    """The columns of a CSV of boxes that are read, block by block, with a progress bar.

    Raises:
        DataError: a column is absent or occurs twice, or a row or a value is damaged.
    """
    header = next(csv_rows(path), [])
    types = {
        "ImageID": pa.string(),
        "LabelName": pa.string(),
        **dict.fromkeys(EDGES, pa.float64()),
    }
    for column in types:
        if header.count(column) != 1:
            raise DataError(
                f"expected one such column, found {header.count(column)} among "
                f"{', '.join(header) or 'none'}",
                file=path,
                row=1,
                field=column,
            )
    if "IsGroupOf" in header:
        types["IsGroupOf"] = pa.int8()

    read_options = arrow_csv.ReadOptions(block_size=BLOCK, use_threads=False)
    convert_options = arrow_csv.ConvertOptions(
        include_columns=list(types), column_types=types, null_values=[], strings_can_be_null=False
    )
    progress = tqdm(
        None, path.name, path.stat().st_size, unit="B", unit_scale=True, leave=False, disable=None
    )
    try:
        with (
            open_binary(path) as file,
            progress,
            arrow_csv.open_csv(file, read_options, None, convert_options) as reader,
        ):
            for batch in reader:
                yield batch
                progress.update(file.tell() - progress.n)
    except pa.ArrowInvalid as error:
        raise _csv_error(str(error), path, header) from None


def _csv_error(message: str, path: Path, header: Sequence[str]) -> DataError:
    """The error about a damaged row, whose number and column are in Arrow's message."""
    row = re.search(r"Row #(\d+): ", message)
    column = re.search(r"In CSV column #(\d+): ", message)
    return DataError(
        re.sub(r"In CSV column #\d+: |Row #\d+: ", "", message),
        file=path,
        row=row[1] if row else None,
        field=header[int(column[1])] if column else None,
    )


def _class_names(path: Path) -> dict[str, str]:
    """Name of each class by its label ("/m/01g317": "Person"), in the file's order.

    Raises:
        DataError: a row is not a label and a name, or a label or name occurs twice.
    """
    name_by_label: dict[str, str] = {}
    names: set[str] = set()
    for line, row in enumerate(csv_rows(path), start=1):
        if row in ([], ["LabelName", "DisplayName"]):
            continue
        if len(row) != 2 or not all(row):
            raise DataError(
                f"expected a label and a name, found {','.join(row)!r}", file=path, row=line
            )
        label, name = row
        if label in name_by_label:
            problem = f"{label!r} is in an earlier row too"
            raise DataError(problem, file=path, row=line, field="LabelName")
        if name in names:
            problem = f"{name!r} is in an earlier row too"
            raise DataError(problem, file=path, row=line, field="DisplayName")
        name_by_label[label] = name
        names.add(name)
    return name_by_label


def _ancestors(path: Path, name_by_label: dict[str, str]) -> dict[str, list[str]]:
    """Named ancestors of each class that has any, nearest first.

    Args:
        path: The JSON of the class hierarchy.
        name_by_label: Name of each class by its label.
    """
    parents_by_label = _parents_by_label(path)
    ancestors_by_name = {}
    for label, name in name_by_label.items():
        ancestors = [
            name_by_label[ancestor]
            for ancestor in _ancestor_labels(label, parents_by_label)
            if ancestor in name_by_label
        ]
        if ancestors:
            ancestors_by_name[name] = ancestors
    return ancestors_by_name


def _parents_by_label(path: Path) -> dict[str, list[str]]:
    """Labels of the classes that a class is a kind or a part of, by its label."""
    parents_by_label: dict[str, list[str]] = {}
    open_nodes = [read_record(path)]
    while open_nodes:
        node = open_nodes.pop()
        for field in ("Subcategory", "Part"):
            if not node.has(field):
                continue
            for child in node.records(field):
                parents = parents_by_label.setdefault(child.text("LabelName"), [])
                if node.text("LabelName") not in parents:
                    parents.append(node.text("LabelName"))
                open_nodes.append(child)
    return parents_by_label


def _ancestor_labels(label: str, parents_by_label: dict[str, list[str]]) -> list[str]:
    """Labels of the ancestors of a class, nearest first (breadth-first search)."""
    ancestors = [parent for parent in parents_by_label.get(label, []) if parent != label]
    queue = deque(ancestors)
    while queue:
        for parent in parents_by_label.get(queue.popleft(), []):
            if parent not in ancestors and parent != label:
                ancestors.append(parent)
                queue.append(parent)
    return ancestors
