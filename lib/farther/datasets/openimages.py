"""OpenImages V4 to V7: boxes in CSV, in fractions of the image; classes in a hierarchy (Kuznetsova et al., 2020)."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Container, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
from pydantic.dataclasses import dataclass
from tqdm import tqdm

from farther.datasets.base import (
    AnnotatedImages,
    AnnotatedObjects,
    Annotations,
    Credit,
    DataWarning,
    Expected,
    Reader,
    fill_all,
    image_file,
    register,
)
from farther.datasets.records import Location, Record, read_json
from farther.errors import DataError
from farther.registry import STRICT
from farther.tables.files import inside

EDGES = ("XMin", "YMin", "XMax", "YMax")
ORIGINALS = ("train", "validation", "test")

#: Bytes of CSV that are parsed at once: memory while reading does not grow with the file.
BLOCK = 16 * 2**20


@register("openimages")
@dataclass(config=STRICT, kw_only=True)
class OpenImages(Reader):
    """OpenImages boxes.

    Coordinates are fractions of the image's width and height, which only the image itself tells. `IsGroupOf` marks a
    box of several objects. Columns may come in any order and others may be there (V4 to V7 differ). Images are those
    in the folders, with boxes or without, and those that a box names. The image id is OpenImages' own; ids are
    sorted. Image-level labels are not read. Ancestors of a class are what it is a kind of (`Subcategory`) or a part
    of (`Part`: a face is a part of a person).

    Tolerated: -1 (unknown) in `IsGroupOf`, and its absence, both as no group; an absent hierarchy file (listed; no
    ancestors); a header in the class descriptions (V7 has one). Tolerated and listed: a box of a class without
    description (dropped), as the evaluation of OpenImages counts described classes only.
    Errors: an absent column; a coordinate that is not a number; XMax below XMin; a row of another length than the
    header; an id that leaves the folder; a class or an image file that occurs twice.

    The CSV is read block by block; a column takes a few bytes per box (the training set has 14 million). `select:
    present` takes a part of the images.

    Args:
        subset_names: Subsets to read. When empty, those of train, validation and test whose boxes are present.
        boxes: The CSV of a subset's boxes, within the root: the first of these that exists.
        classes: The CSV of class names: the first of these that exists.
        hierarchy: The JSON of the class hierarchy.
        images: Folders of a subset's images; the training set comes in several.
        extension: Of the image files.
        select: `annotated` reads all images; `present` those whose files are in the folders. Boxes of others are then
            left out, and counted in one warning.
        credit_lists: The CSV that says licence and author of each image: the first of these that exists.
    """

    SOURCE: ClassVar[str] = (
        "storage.googleapis.com/openimages (Kuznetsova et al., 2020, doi:10.1007/s11263-020-01316-z)"
    )

    subset_names: tuple[str, ...] = ()
    boxes: tuple[str, ...] = ("{subset}-annotations-bbox.csv", "oidv6-{subset}-annotations-bbox.csv")
    classes: tuple[str, ...] = ("class-descriptions-boxable.csv", "oidv7-class-descriptions-boxable.csv")
    hierarchy: str = "bbox_labels_600_hierarchy.json"
    images: tuple[str, ...] = ("{subset}",)
    extension: str = ".jpg"
    select: Literal["annotated", "present"] = "annotated"
    credit_lists: tuple[str, ...] = (
        "{subset}-images-with-rotation.csv",
        "{subset}-images-boxable-with-rotation.csv",
        "oidv6-{subset}-images-with-labels-with-rotation.csv",
        "image_ids_and_rotation.csv",
    )

    def subsets(self) -> list[str]:
        """Names of the subsets; see `Reader`."""
        return self._subsets_present(self.subset_names, {subset: fill_all(self.boxes, subset) for subset in ORIGINALS})

    def expects(self, subset: str) -> list[Expected]:
        """Files and folders of a subset; see `Reader`."""
        boxes, classes, images = (fill_all(paths, subset) for paths in (self.boxes, self.classes, self.images))
        return [
            Expected("boxes", boxes, f"'Boxes' of the subset {subset}"),
            Expected("class names", classes, "'Class Names' of the boxable classes"),
            Expected("class hierarchy", (self.hierarchy,), "'Hierarchy' of the 600 boxable classes"),
            *(Expected("images", (folder,), f"images of the subset {subset}, by their ids") for folder in images),
        ]

    def read(self, subset: str) -> Annotations:
        """The annotations of one subset; see `Reader` and, for what is an error, the class."""
        names = _class_names(self._first_present(self.classes, subset, "classes"))
        path = self._first_present(self.boxes, subset, "boxes")
        folders = fill_all(self.images, subset)
        files = self._present(folders)
        boxes = _Boxes(path, names, only=files if self.select == "present" else None)
        images, rank = self._images(folders[0], files, boxes)
        parents, warnings = self._parents(names)
        file = path.relative_to(self.root).as_posix()
        warnings += [
            DataWarning("object of an unknown category", "object", file, str(row), "LabelName", label, "dropped")
            for row, label in boxes.unknown
        ]
        if boxes.left_out:
            kind = "boxes of images that are not there"
            warnings.append(DataWarning(kind, "dataset", file, None, "ImageID", f"{boxes.left_out} boxes", "left out"))
        return Annotations(
            images=images,
            objects=boxes.columns(rank),
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
        path = next((path for path in paths if path.exists()), None)
        rows = iter(()) if path is None else _csv_rows(path)
        header = next(rows, [])
        for row in rows:
            known = dict(zip(header, row, strict=False))
            yield (
                known.get("ImageID", ""),
                Credit(
                    license=known.get("License", ""),
                    license_url=known.get("License", ""),
                    author=known.get("Author", ""),
                    source_url=known.get("OriginalLandingURL", ""),
                ),
            )

    def _images(self, folder: str, present: dict[str, str], boxes: _Boxes) -> tuple[AnnotatedImages, np.ndarray]:
        """The images of folders and boxes, sorted, and the row of each image of the boxes."""
        found = dict(present)
        for image_id in [image_id for image_id in boxes.images if image_id not in found]:
            location = Location(boxes.path, str(boxes.images[image_id][1]), "ImageID")
            found[image_id] = image_file(self.root, folder, image_id + self.extension, location)
        ids = sorted(found)
        row = {image_id: row for row, image_id in enumerate(ids)}
        unknown = np.zeros(len(ids), dtype=np.int64)
        files = np.array([found[i] for i in ids], dtype=object)
        images = AnnotatedImages(np.array(ids, dtype=object), files, unknown, unknown)
        return images, np.array([row[image_id] for image_id in boxes.images], dtype=np.int64)

    def _present(self, folders: Sequence[str]) -> dict[str, str]:
        """Path within the root of each image file, by image id."""
        found: dict[str, str] = {}
        for folder in folders:
            path = inside(self.root, folder)
            if not path.is_dir():
                raise DataError("the folder of images does not exist; parameter 'images' names it", file=path)
            for entry in os.scandir(path):
                if entry.name.endswith(self.extension) and not entry.name.startswith("."):
                    image_id = entry.name.removesuffix(self.extension)
                    if image_id in found:
                        raise DataError(f"the image is also in {found[image_id]}", file=entry.path)
                    found[image_id] = (Path(folder) / entry.name).as_posix()
        return found

    def _parents(self, names: dict[str, str]) -> tuple[dict[str, list[str]], list[DataWarning]]:
        path = inside(self.root, self.hierarchy)
        if not path.exists():
            action = "no class has ancestors"
            return {}, [DataWarning("no class hierarchy", "dataset", self.hierarchy, None, None, "no file", action)]
        return _ancestors(path, names), []


class _Boxes:
    """The rows of a CSV of boxes, read block by block.

    Args:
        path: The file.
        names: Name of each class by its label.
        only: The images whose boxes are wanted; None for all.

    Attributes:
        images: Number (in order of appearance) and first line of each image id.
        unknown: Line and label of the boxes whose class has no description.
        left_out: Number of boxes of images that are not wanted.
    """

    def __init__(self, path: Path, names: dict[str, str], only: Container[str] | None = None):
        self.path = path
        self.left_out = 0
        self._only = only
        self.images: dict[str, tuple[int, int]] = {}
        self.unknown: list[tuple[int, str]] = []
        self._category = {label: row for row, label in enumerate(names)}
        self._blocks: list[tuple[np.ndarray, ...]] = []
        line = 2  # after the header
        for batch in _batches(path):
            self._add(batch, line)
            line += batch.num_rows

    def _add(self, batch: pa.RecordBatch, line: int) -> None:
        """Adds a block whose first row is on a line of the file."""
        wanted = self._wanted(batch.column("ImageID"))
        self.left_out += int(batch.num_rows - wanted.sum())
        labels = batch.column("LabelName").dictionary_encode()
        words = labels.dictionary.to_pylist()
        category = np.array([self._category.get(word, -1) for word in words], dtype=np.int32)[labels.indices.to_numpy()]
        for row in np.flatnonzero(wanted & (category < 0)):
            self.unknown.append((line + int(row), words[labels.indices[row].as_py()]))
        box = np.stack([batch.column(edge).to_numpy() for edge in EDGES], axis=1)
        group = self._groups(batch, line)
        known = wanted & (category >= 0)
        rows = np.arange(line, line + batch.num_rows, dtype=np.int64)
        columns = (self._numbers(batch.column("ImageID"), wanted, line), box, category, rows, group)
        self._blocks.append(tuple(column[known] for column in columns))

    def _groups(self, batch: pa.RecordBatch, line: int) -> np.ndarray:
        """Mask of the rows that are groups."""
        if "IsGroupOf" not in batch.schema.names:
            return np.zeros(batch.num_rows, dtype=bool)
        values = batch.column("IsGroupOf").to_numpy()
        wrong = np.flatnonzero((values < -1) | (values > 1))
        if len(wrong):
            problem = f"expected 1, 0 or -1 (unknown), found {values[wrong[0]]}"
            raise DataError(problem, file=self.path, row=line + int(wrong[0]), field="IsGroupOf")
        return values == 1

    def _wanted(self, ids: pa.Array) -> np.ndarray:
        """Mask of the rows whose images are wanted."""
        if self._only is None:
            return np.ones(len(ids), dtype=bool)
        encoded = ids.dictionary_encode()
        wanted = [image_id in self._only for image_id in encoded.dictionary.to_pylist()]
        return np.array(wanted, dtype=bool)[encoded.indices.to_numpy()]

    def _numbers(self, ids: pa.Array, wanted: np.ndarray, line: int) -> np.ndarray:
        """Number of each row's image, -1 where it is not wanted; images met for the first time get the next ones."""
        encoded = ids.dictionary_encode()
        indices = encoded.indices.to_numpy()
        first = np.unique(indices, return_index=True)[1]
        numbers = np.full(len(encoded.dictionary), -1, dtype=np.int32)
        for word, image_id in enumerate(encoded.dictionary.to_pylist()):
            if wanted[first[word]]:
                numbers[word] = self.images.setdefault(image_id, (len(self.images), line + int(first[word])))[0]
        return numbers[indices]

    def columns(self, rank: np.ndarray) -> AnnotatedObjects:
        """All objects; `rank` is the row of each image by its number."""
        empty = (
            np.zeros(0, np.int32),
            np.zeros((0, 4)),
            np.zeros(0, np.int32),
            np.zeros(0, np.int64),
            np.zeros(0, bool),
        )
        columns = [list(column) for column in zip(empty, *self._blocks, strict=True)]
        self._blocks.clear()
        image, box, category, row, group = (np.concatenate(columns.pop(0)) for _ in empty)  # one column twice at a time
        return AnnotatedObjects(
            image=rank[image] if len(image) else image.astype(np.int64),
            box=box,
            category=category,
            object_id=np.arange(len(image), dtype=np.int64),
            row=row,
            is_crowd=group,
            is_difficult=np.zeros(len(image), dtype=bool),
            unit="image",
        )


def _batches(path: Path) -> Iterator[pa.RecordBatch]:
    """The wanted columns of a CSV of boxes, block by block, with a progress bar."""
    wanted = {"ImageID": pa.string(), "LabelName": pa.string(), **dict.fromkeys(EDGES, pa.float64())}
    present = _header(path)
    for column in wanted:
        if present.count(column) != 1:
            problem = f"expected one such column, found {present.count(column)} among {', '.join(present)}"
            raise DataError(problem, file=path, row=1, field=column)
    if "IsGroupOf" in present:
        wanted["IsGroupOf"] = pa.int8()
    convert = arrow_csv.ConvertOptions(
        include_columns=list(wanted), column_types=wanted, null_values=[], strings_can_be_null=False
    )
    read = arrow_csv.ReadOptions(block_size=BLOCK, use_threads=False)
    try:
        with (
            path.open("rb") as file,
            tqdm(total=path.stat().st_size, desc=path.name, unit="B", unit_scale=True, leave=False) as progress,
            arrow_csv.open_csv(file, read_options=read, convert_options=convert) as reader,
        ):
            for batch in reader:
                yield batch
                progress.update(file.tell() - progress.n)
    except pa.ArrowInvalid as error:
        raise _csv_error(str(error), path, present) from None


def _csv_error(message: str, path: Path, header: list[str]) -> DataError:
    """pyarrow's message about a CSV file, with the line and the column's name taken out of it."""
    row, column = re.search(r"Row #(\d+): ", message), re.search(r"In CSV column #(\d+): ", message)
    problem = re.sub(r"In CSV column #\d+: |Row #\d+: ", "", message)
    field = None if column is None else header[int(column[1])]
    return DataError(problem, file=path, row=None if row is None else row[1], field=field)


def _header(path: Path) -> list[str]:
    rows = _csv_rows(path)
    first = next(rows, None)
    if first is None:
        raise DataError("the file is empty; expected a header with ImageID, LabelName, XMin, …", file=path, row=1)
    return first


def _csv_rows(path: Path) -> Iterator[list[str]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            yield from csv.reader(file)
    except UnicodeDecodeError as error:
        raise DataError(f"not UTF-8 at byte {error.start}", file=path) from None


def _class_names(path: Path) -> dict[str, str]:
    """Name of each class by its label ("/m/01g317": "Person"), in the file's order."""
    names, taken = dict[str, str](), set[str]()
    for line, row in enumerate(_csv_rows(path), start=1):
        if row in ([], ["LabelName", "DisplayName"]):
            continue
        if len(row) != 2 or not all(row):
            raise DataError(f"expected a label and a name, found {','.join(row)!r}", file=path, row=line)
        label, name = row
        for field, value, known in (("LabelName", label, names), ("DisplayName", name, taken)):
            if value in known:
                raise DataError(f"{value!r} is in an earlier row too", file=path, row=line, field=field)
        names[label] = name
        taken.add(name)
    return names


def _ancestors(path: Path, names: dict[str, str]) -> dict[str, list[str]]:
    """Named ancestors of each class, nearest first."""
    above: dict[str, list[str]] = {}
    content: Any = read_json(path)
    if not isinstance(content, dict):
        raise DataError("expected an object with LabelName and Subcategory", file=path)
    open_nodes = [Record(content, path)]
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
        line.extend(other for other in above.get(ancestor, ()) if other not in line and other != label)
    return [names[ancestor] for ancestor in line if ancestor in names and ancestor != label]
