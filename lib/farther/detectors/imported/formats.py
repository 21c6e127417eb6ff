"""Files of detections as other programs write them, read as the records of COCO results.

- CSV, and JSON lists of flat objects, as the sinks of supervision write them
  (https://supervision.roboflow.com/latest/detection/tools/save_detections/): see
  `farther.detectors.imported.columns`.
- Ultralytics: `Results.to_json` of one image, and the text files of `save_txt=True save_conf=True`
  (https://docs.ultralytics.com/reference/engine/results/).
- FiftyOne: `samples.json` of a FiftyOneDataset
  (https://docs.voxel51.com/user_guide/export_datasets.html).
- MMDetection: `preds/*.json` of DetInferencer, one per image
  (https://github.com/open-mmlab/mmdetection/blob/main/mmdet/apis/det_inferencer.py).
- COCO results, and COCO annotations whose boxes have scores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from farther.detectors.imported.columns import (
    BOXES,
    OPTIONAL,
    Columns,
    csv_batches,
    csv_columns,
    records_of,
)
from farther.detectors.imported.numbers import whole_number
from farther.errors import DataError, shorten
from farther.tables.documents import read_json
from farther.tables.files import is_file, open_binary, read_text
from farther.tables.folders import listed
from farther.tables.json_stream import list_elements

#: Records that are read at once.
BATCH = 4096
#: A file beside detections that names the numbers of their classes, from 0, one per line.
CLASSES = "classes.txt"
#: Columns of text files: as Ultralytics writes them, and as older tools do.
TEXTS = (
    ("class", "cx", "cy", "width", "height", "score"),
    ("class", "score", "cx", "cy", "width", "height"),
    ("class", "score", "xmin", "ymin", "xmax", "ymax"),
    ("class", "score", "xmin", "ymin", "width", "height"),
)
#: Files that hold pickled objects, which are not read, and what to give in their place.
PICKLES = {
    "results.pkl": "run MMDetection's tools/test.py with `--cfg-options test_evaluator.format_only=True "
    "test_evaluator.outfile_prefix=results`, and give the results.bbox.json that it writes",
    "instances_predictions.pth": "give the coco_instances_results.json that Detectron2 writes beside it",
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
        fields: What the file calls these fields, where it calls them otherwise.
    """

    file: Path
    first: int
    records: list[dict[str, Any]]
    fields: dict[str, str]


@dataclass(frozen=True)
class Results:
    """One file of detections, opened.

    Args:
        format: What it is, for messages.
        batches: Reads it.
        named: Whether `image_id` holds ids of images, or the names of their files, with or without
            ending.
        first_class: Number of the first class, where classes have numbers; None where they are the
            ID dataset's own.
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
    """A file of detections, in the format that it has.

    Args:
        path: The file: .csv, .tsv, .txt or .json.
        columns: Names of the columns of a CSV file without a line of names, or of a text file.

    Raises:
        DataError: it is in none of the formats, or lacks what every detection must have; says what
            to write.
    """
    if path.suffix in (".csv", ".tsv"):
        found = csv_columns(path, columns)
        named: Literal["id", "file"] = "id" if found.image_is_id else "file"
        return Results("CSV", lambda: _table(path, found, columns), named, found.first_class)
    if path.suffix == ".txt":
        return Results("text", lambda: _text(path, columns or TEXTS[0]), per_image=True)
    if path.suffix != ".json":
        raise DataError("unknown format of detections", file=path)
    with open_binary(path) as file:
        start = file.read(1024).lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    return _of_list(path) if start == b"[" else _of_object(path)


def files_of(folder: Path) -> list[Path]:
    """The files of detections in a folder, text where there are no others; of a FiftyOneDataset, its samples.json."""
    if is_file(folder / "samples.json"):
        return [folder / "samples.json"]
    found = [file for ending in ("csv", "tsv", "json") for file in listed(folder, f"*.{ending}")]
    found = [file for file in found if file.name != "regions.json"]
    return found or [file for file in listed(folder, "*.txt") if file.name != CLASSES]


def _of_list(path: Path) -> Results:
    """COCO results, the JSON of supervision, or that of Ultralytics for one image."""
    first = next(iter(list_elements(path)), None)
    if first is None:
        return Results("", lambda: iter(()))
    if not isinstance(first, dict):
        raise DataError(f"expected a list of detections, found {shorten(first)}", file=path, row=0)
    if "bbox" in first:
        return Results("COCO results", lambda: _batches(path, list_elements(path)), "id", None)
    if isinstance(first.get("box"), dict):
        if "x3" in first["box"]:
            raise DataError(
                "oriented boxes, which are not supported", file=path, row=0, field="box"
            )
        columns = Columns.of(["name", "confidence", "x1", "y1", "x2", "y2", "image"], path)
        flat = (
            {**one, **one["box"], "image": path.stem} if _is_boxed(one) else one
            for one in list_elements(path)
        )
        return Results("Ultralytics' JSON", lambda: _flat(path, flat, columns), per_image=True)
    columns = Columns.of(list(first), path)
    read = lambda: _flat(path, list_elements(path), columns)  # noqa: E731
    return Results(
        "a JSON list", read, "id" if columns.image_is_id else "file", columns.first_class
    )


def _is_boxed(one: Any) -> bool:
    return isinstance(one, dict) and isinstance(one.get("box"), dict)


def _of_object(path: Path) -> Results:
    """FiftyOne's samples, MMDetection's predictions of one image, or COCO annotations with scores."""
    if (samples := _peek(path, "samples")) is not None:
        field = _fiftyone_field(path)
        return Results(
            "FiftyOne's samples", lambda: _batches(path, _fiftyone(path, field), _FIFTYONE)
        )
    if isinstance(samples := _peek(path, "annotations"), dict) and "score" in samples:
        names = tuple(_named(path, "categories", "name").values())
        return Results(
            "COCO annotations with scores", lambda: _batches(path, _coco(path)), classes=names
        )
    content = read_json(path)
    if isinstance(content, dict) and {"labels", "scores", "bboxes"} <= content.keys():
        return Results("MMDetection's JSON", lambda: _mmdetection(path, content), per_image=True)
    raise DataError(
        "no detections that are known: expected a list of objects with image_id, category_id, bbox and score (COCO "
        "results), FiftyOne's samples, or MMDetection's labels, scores and bboxes",
        file=path,
    )


def _peek(path: Path, key: str) -> Any:
    return next(iter(list_elements(path, key)), None)


def _batches(
    path: Path, records: Iterator[Any], fields: dict[str, str] | None = None
) -> Iterator[Batch]:
    first = 0
    while some := list(islice(records, BATCH)):
        yield Batch(path, first, some, fields or {})
        first += len(some)


def _flat(path: Path, elements: Iterator[Any], columns: Columns) -> Iterator[Batch]:
    """Objects with one value per column."""
    for batch in _batches(path, elements, columns.fields):
        yield Batch(
            path, batch.first, records_of(batch.records, columns, path, batch.first), columns.fields
        )


def _table(path: Path, columns: Columns, header: Sequence[str] | None) -> Iterator[Batch]:
    for first, rows in csv_batches(path, columns, header, BATCH):
        yield Batch(path, first, records_of(rows, columns, path, first), columns.fields)


def _text(path: Path, names: Sequence[str]) -> Iterator[Batch]:
    """Lines of numbers; an image's name is that of its file, and a number behind the last column is a track's."""
    columns = Columns.of([*names, "image"], path)
    rows = []
    lines = [line.split() for line in read_text(path).splitlines()]
    for number, cells in enumerate(lines, 1):
        if len(cells) == len(names) - 1 and "score" in names:
            problem = (
                f"{len(cells)} numbers: the confidence is missing. Write it, too: `yolo predict save_txt=True "
                "save_conf=True`"
            )
            raise DataError(problem, file=path, row=number)
        if len(cells) not in (len(names), len(names) + 1):
            problem = f"expected {len(names)} numbers ({' '.join(names)}), found {len(cells)}"
            raise DataError(problem, file=path, row=number)
        rows.append({**dict(zip(names, cells, strict=False)), "image": path.stem})
    if rows:
        yield Batch(path, 1, records_of(rows, columns, path, 1), columns.fields)


_FIFTYONE = {
    "bbox": "bounding_box",
    "category_id": "label",
    "score": "confidence",
    "image_id": "filepath",
}


def _fiftyone_field(path: Path) -> str:
    """The field of samples that holds detections with confidences."""
    found: dict[str, None] = {}
    for sample in _objects(path, "samples"):
        for name, value in sample.items():
            if any("confidence" in one and one["confidence"] is not None for one in _labels(value)):
                found[name] = None
    if len(found) == 1 or "predictions" in found:
        return "predictions" if "predictions" in found else next(iter(found))
    if not found:
        raise DataError("no field of the samples has detections with a confidence", file=path)
    problem = (
        f"detections with confidences are in {' and '.join(map(repr, found))}: export one of them"
    )
    raise DataError(f"{problem}, with `dataset.select_fields({next(iter(found))!r})`", file=path)


def _labels(value: Any) -> list[dict[str, Any]]:
    found = value.get("detections") if isinstance(value, dict) else None
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _fiftyone(path: Path, field: str) -> Iterator[dict[str, Any]]:
    """Detections of samples; images that were exported, too, are in `data/`, which says nothing of their folders."""
    names = {ours: theirs for ours, theirs in _FIFTYONE.items() if ours != "image_id"}
    for sample in _objects(path, "samples"):
        for one in _labels(sample.get(field)):
            found = {ours: one[theirs] for ours, theirs in names.items() if theirs in one}
            optional = {name: one[name] for name in OPTIONAL if one.get(name) is not None}
            yield {
                "image_id": str(sample.get("filepath")).removeprefix("data/"),
                **found,
                **optional,
            }


def _coco(path: Path) -> Iterator[Any]:
    """Boxes of COCO annotations, with the names of their images and classes."""
    images, names = _named(path, "images", "file_name"), _named(path, "categories", "name")
    for row, one in enumerate(_objects(path, "annotations")):
        for field, known in (("image_id", images), ("category_id", names)):
            if (number := _key(one.get(field))) not in known:
                raise DataError(
                    f"{shorten(one.get(field))} is not in the file", file=path, row=row, field=field
                )
            one[field] = known[number]
        yield one


def _named(path: Path, key: str, name: str) -> dict[str, str]:
    """Name of each image or category of a COCO file, by its number; none occurs twice."""
    found: dict[str, str] = {}
    names: set[str] = set()
    for row, one in enumerate(_objects(path, key)):
        number, value = _key(one.get("id")), str(one.get(name))
        for field, known in (("id", found), (name, names)):
            if (number if field == "id" else value) in known:
                raise DataError(
                    f"{shorten(one.get(field))} occurs twice",
                    file=path,
                    row=f"{key}[{row}]",
                    field=field,
                )
        found[number] = value
        names.add(value)
    return found


def _key(value: Any) -> str:
    """The id of an image or category as text: 7, 7.0 and "7" are one."""
    number = whole_number(value)
    return str(value if number is None else number)


def _objects(path: Path, key: str) -> Iterator[dict[str, Any]]:
    """The elements of a list in a file.

    Raises:
        DataError: one is not an object.
    """
    for row, one in enumerate(list_elements(path, key)):
        if not isinstance(one, dict):
            raise DataError(
                f"expected an object, found {shorten(one)}", file=path, row=f"{key}[{row}]"
            )
        yield one


def _mmdetection(path: Path, content: dict[str, Any]) -> Iterator[Batch]:
    """Lists of labels, scores and boxes (xmin, ymin, xmax, ymax) of one image, whose name is the file's."""
    labels, scores, boxes = (content[name] for name in ("labels", "scores", "bboxes"))
    if not (isinstance(labels, list) and isinstance(scores, list) and isinstance(boxes, list)):
        raise DataError("expected lists of labels, scores and bboxes", file=path)
    if not len(labels) == len(scores) == len(boxes):
        problem = f"{len(labels)} labels, {len(scores)} scores and {len(boxes)} bboxes"
        raise DataError(f"{problem}: expected as many of each", file=path)
    for row, box in enumerate(boxes):
        if not isinstance(box, list) or len(box) != 4:
            raise DataError(
                f"expected 4 numbers, found {shorten(box)}", file=path, row=row, field="bboxes"
            )
    names = ("class", "score", *BOXES["corners"], "image")
    rows = [
        dict(zip(names, (label, score, *box, path.stem), strict=True))
        for label, score, box in zip(labels, scores, boxes, strict=True)
    ]
    fields = {"category_id": "labels", "score": "scores", "bbox": "bboxes"}
    if rows:
        yield Batch(path, 0, records_of(rows, Columns.of(names, path), path, 0), fields)
