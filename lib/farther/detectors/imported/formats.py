"""Formats of files of detections: recognised, and read as records of COCO results.

- CSV, and JSON lists of flat objects, as the sinks of supervision write them
  (https://supervision.roboflow.com/latest/detection/tools/save_detections/): see
  `farther.detectors.imported.columns`.
- COCO results, and COCO annotations whose boxes have scores (`coco_annotations`).
- Files of Ultralytics (`ultralytics`), FiftyOne (`fiftyone`) and MMDetection (`mmdetection`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from farther.detectors.imported import coco_annotations, fiftyone, mmdetection, ultralytics
from farther.detectors.imported.columns import Columns, csv_batches, csv_columns, records_of
from farther.detectors.imported.records import fields_of, with_upright_boxes
from farther.errors import DataError, shorten
from farther.tables.documents import read_json
from farther.tables.endings import JSON, TABLES, TEXT, has_ending, refuse_twins
from farther.tables.files import is_file, open_binary
from farther.tables.folders import find_file, listed
from farther.tables.json_stream import list_elements

#: Number of records in a batch.
BATCH = 4096
#: A file beside detections with the names of their classes, from number 0, one per line.
CLASSES = "classes.txt"
#: Columns of text files: as Ultralytics writes them, and as older tools do.
TEXTS = (
    ultralytics.BOX_COLUMNS,
    ("class", "score", "cx", "cy", "width", "height"),
    ("class", "score", "xmin", "ymin", "xmax", "ymax"),
    ("class", "score", "xmin", "ymin", "width", "height"),
)
#: Files that hold pickled objects, which are not read, and advice on what to give instead.
PICKLES = {
    "results.pkl": "run MMDetection's tools/test.py with "
    "`--cfg-options test_evaluator.format_only=True test_evaluator.outfile_prefix=results`, and "
    "give the results.bbox.json that it writes",
    "instances_predictions.pth": "give the coco_instances_results.json that Detectron2 writes "
    "beside it",
}


@dataclass(frozen=True)
class Batch:
    """Some records of a file, with the fields of COCO results.

    Args:
        file: The file.
        first: Number of the first record: its line in CSV and text files, else its place in the
            file.
        records: Each with `image_id`, `category_id`, `bbox` (x, y, width, height), `score` and
            optional fields.
        fields: The file's own names of these fields, where they differ.
        oriented: Number of records whose box is the envelope of an oriented box or an outline.
        unread: Names of columns or fields that are not read.
    """

    file: Path
    first: int
    records: list[dict[str, Any]]
    fields: dict[str, str] = field(default_factory=dict)
    oriented: int = 0
    unread: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Results:
    """One file of detections, opened.

    Args:
        format: Name of the format, for messages.
        batches: Reads the detections.
        named: Whether `image_id` holds ids of images, or the names of their files, with or without
            ending.
        first_class: Number of the first class, where classes have numbers; None where the numbers
            are those of the ID dataset.
        per_image: True where there is one file for each image.
        classes: Classes that the file names beside those of its detections.
    """

    format: str
    batches: Callable[[], Iterator[Batch]]
    named: Literal["id", "file"] = "file"
    first_class: int | None = 0
    per_image: bool = False
    classes: tuple[str, ...] = ()


def open_results(path: Path, columns: Sequence[str] | None = None) -> Results:
    """Opens a file of detections and recognises its format.

    Args:
        path: The file: .csv, .tsv, .txt or .json.
        columns: Names of the columns of a CSV file without a line of names, or of a text file.

    Raises:
        DataError: it is in none of the formats, or a required value of detections is missing; says
            what to write.
    """
    if has_ending(path, TABLES):
        return _open_csv(path, columns)
    if has_ending(path, TEXT):
        return _open_text(path, columns or TEXTS[0])
    if not has_ending(path, JSON):
        raise DataError("unknown format of detections", file=path)
    with open_binary(path) as file:
        first_character = file.read(1024).lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    if first_character == b"[":
        return _open_json_list(path)
    return _open_json_object(path)


def files_of(folder: Path) -> list[Path]:
    """The files of detections in a folder; text files only where there are no others.

    Of a FiftyOneDataset, it is samples.json.

    Raises:
        DataError: the names of two files differ in the case of their ending alone.
    """
    samples = find_file(folder / "samples.json")
    if is_file(samples):
        return [samples]
    files = []
    for ending in (*TABLES, *JSON):
        files += [file for file in listed(folder, f"*{ending}") if file.name != "regions.json"]
    if not files:
        names = find_file(folder / CLASSES).name
        files = [file for file in listed(folder, "*.txt") if file.name != names]
    refuse_twins(files)
    return files


def _open_csv(path: Path, header: Sequence[str] | None) -> Results:
    """A CSV file; `header` has the names of its columns if its first line does not."""
    columns = csv_columns(path, header)

    def batches() -> Iterator[Batch]:
        for first, rows in csv_batches(path, columns, header, BATCH):
            yield _table_batch(path, first, rows, columns)

    return Results("CSV", batches, _image_names(columns), columns.first_class)


def _open_text(path: Path, names: Sequence[str]) -> Results:
    """A text file of numbers, whose columns have these names."""

    def batches() -> Iterator[Batch]:
        text_rows = ultralytics.read_text_rows(path, names)
        columns = Columns.of([*text_rows.columns, "image"], path)
        if text_rows.rows:
            batch = _table_batch(path, 1, text_rows.rows, columns)
            yield replace(batch, oriented=text_rows.outlines)

    return Results("text", batches, per_image=True)


def _open_json_list(path: Path) -> Results:
    """COCO results, the JSON of supervision, or that of Ultralytics for one image."""
    first = _first_element(path)
    if first is None:
        return Results("", lambda: iter(()))
    if not isinstance(first, dict):
        raise DataError(f"expected a list of detections, found {shorten(first)}", file=path, row=0)
    if "bbox" in first:
        return Results("COCO results", lambda: _batches(path, list_elements(path)), "id", None)
    if isinstance(first.get("box"), dict):
        return _open_ultralytics_json(path, first["box"])

    columns = Columns.of(list(first), path)

    def batches() -> Iterator[Batch]:
        return _flat_batches(path, list_elements(path), columns)

    return Results("a JSON list", batches, _image_names(columns), columns.first_class)


def _open_ultralytics_json(path: Path, first_box: dict[str, Any]) -> Results:
    """Ultralytics' JSON of one image."""
    names: Sequence[str] = ultralytics.JSON_COLUMNS
    if "x3" in first_box:
        names = ultralytics.ORIENTED_JSON_COLUMNS
    columns = Columns.of(names, path)

    def batches() -> Iterator[Batch]:
        elements = ultralytics.flat_objects(path, list_elements(path))
        return _flat_batches(path, elements, columns)

    return Results("Ultralytics' JSON", batches, per_image=True)


def _open_json_object(path: Path) -> Results:
    """FiftyOne's samples, COCO annotations with scores, or MMDetection's predictions."""
    if _first_element(path, "samples") is not None:
        predictions_field = fiftyone.predictions_field(path)

        def fiftyone_batches() -> Iterator[Batch]:
            records = fiftyone.read_records(path, predictions_field)
            return _batches(path, records, fiftyone.FIELDS)

        return Results("FiftyOne's samples", fiftyone_batches)

    annotation = _first_element(path, "annotations")
    if isinstance(annotation, dict) and "score" in annotation:
        classes = coco_annotations.read_names(path, "categories", "name").values()

        def coco_batches() -> Iterator[Batch]:
            return _batches(path, coco_annotations.read_records(path))

        return Results("COCO annotations with scores", coco_batches, classes=tuple(classes))

    content = read_json(path)
    if mmdetection.is_predictions(content):

        def mmdetection_batches() -> Iterator[Batch]:
            rows = mmdetection.read_rows(path, content)
            columns = Columns.of(list(rows[0]) if rows else mmdetection.COLUMNS, path)
            if rows:
                yield replace(_table_batch(path, 0, rows, columns), fields=mmdetection.FIELDS)

        return Results("MMDetection's JSON", mmdetection_batches, per_image=True)
    raise DataError(
        "no detections that are known: expected a list of objects with image_id, category_id, bbox "
        "and score (COCO results), FiftyOne's samples, or MMDetection's labels, scores and bboxes",
        file=path,
    )


def _image_names(columns: Columns) -> Literal["id", "file"]:
    """Whether the images of a table have ids or names of files."""
    return "id" if columns.image_is_id else "file"


def _first_element(path: Path, key: str | None = None) -> Any:
    """The first element of a JSON list, at a key of an object if one is given; None without any."""
    return next(iter(list_elements(path, key)), None)


def _batches(
    path: Path, records: Iterator[Any], fields: dict[str, str] | None = None
) -> Iterator[Batch]:
    """Yields batches of records of COCO results."""
    for first, elements in _numbered_parts(records):
        upright = with_upright_boxes(elements, path, first)
        yield Batch(
            path,
            first,
            upright.detections,
            fields or {},
            upright.oriented,
            upright.unread,
        )


def _numbered_parts(elements: Iterator[Any]) -> Iterator[tuple[int, list[Any]]]:
    """Yields `BATCH` elements at a time, with the number of the first."""
    first = 0
    while part := list(islice(elements, BATCH)):
        yield first, part
        first += len(part)


def _flat_batches(path: Path, elements: Iterator[Any], columns: Columns) -> Iterator[Batch]:
    """Yields batches of objects with one value per column."""
    for first, rows in _numbered_parts(elements):
        yield _table_batch(path, first, rows, columns.with_fields(fields_of(rows)))


def _table_batch(path: Path, first: int, rows: list[Any], columns: Columns) -> Batch:
    """Rows of a table as a batch."""
    records = records_of(rows, columns, path, first)
    unread = frozenset(columns.unread)
    return Batch(path, first, records.detections, columns.fields, records.oriented, unread)
