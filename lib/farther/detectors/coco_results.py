"""COCO results: a JSON list of detections, as pycocotools and most detection libraries write it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic.dataclasses import dataclass

from farther.detectors.base import register
from farther.detectors.imported.base import Imported, Place, Placed, Source
from farther.errors import DataError, ParameterError, shorten
from farther.registry import STRICT
from farther.tables import Header
from farther.tables.folders import listed, resolved
from farther.tables.header import Activation
from farther.tables.json_stream import list_elements

#: Detections that are checked at once.
BATCH = 4096
#: Fields that a detection may have beside those that it must have, and how many numbers each is: one, or a list.
OPTIONAL: dict[str, Literal["one", "list"]] = {
    "logits": "list",
    "features": "list",
    "latent": "list",
    "box_variance": "list",
    "uncertainty": "one",
}


@register("coco_results")
@dataclass(config=STRICT, kw_only=True)
class CocoResults(Imported):
    """Detections from COCO results files: `image_id`, `category_id`, `bbox` (x, y, width, height) and `score` of each.

    Each may also have `logits`, `features`, `latent`, `box_variance` (of xmin, ymin, xmax and ymax) and `uncertainty`:
    then all must. Other fields are not read.

    Args:
        weights: A JSON file, or a folder of such files (`*.json`).
        score_threshold, score_tolerance, last_layer: See `Imported`.
        annotations: COCO annotation file whose `images` give the file of an `image_id`; where the results are
            a folder, one file for all, or one for each results file by its name without ending. Without, `image_id` is
            that of the images table; a number is also padded to 12 digits, as COCO does.
        categories: `category_id` → name of the class, or an annotation file whose `categories` say so. Without, those
            of `annotations`; a `category_id` that is text is always the name itself.
        classes: Name of each value of `logits`, in order; without, the categories by rising number.
        match: Field that names the image: `image_id`, or `file_name` (as ultralytics writes it), whose end is compared
            with that of the image's path. Without, `file_name` where the first detection has it and there are no
            `annotations`.
        background_index: Which of them is "no object".
        activation: Turns the logits into the scores.
    """

    annotations: Path | dict[str, Path] | None = None
    categories: dict[int, str] | Path | None = None
    classes: tuple[str, ...] | None = None
    match: Literal["image_id", "file_name"] | None = None
    background_index: int | None = None
    activation: Activation = "softmax"

    FIELDS: ClassVar[dict[str, str]] = {"box": "bbox", "label": "category_id"}

    def header(self) -> Header:
        """See `Adapter.header`."""
        classes = self.classes or tuple(name for _, name in sorted(self._names.items()))
        if not classes:
            raise ParameterError("detector 'coco_results': give the parameter 'classes' or 'categories'")
        if len(set(classes)) < len(classes):
            raise ParameterError(f"detector 'coco_results': a class is named twice in {shorten(list(classes))}")
        return Header(
            classes=classes,
            background_index=self.background_index,
            activation=self.activation,
            score_threshold=self.score_threshold,
            detector=self.identity,
            weight=self.layer().get("weight"),
            bias=self.layer().get("bias"),
        )

    def sources(self) -> list[Source]:
        """See `Imported.sources`."""
        sources = []
        for path, files in self._image_files.items():
            name = path.stem if len(self._image_files) > 1 else ""
            sources.append(Source(name, path, None if files is None else tuple(files.values())))
        return sources

    def files(self) -> list[Path]:
        """See `Imported.files`."""
        described = [*self._annotation_files(), self.categories, self.last_layer]
        files = [*self._results(), *(file for file in described if isinstance(file, Path))]
        for file in files:
            if not file.is_file():
                raise DataError("the file does not exist", file=file)
        return files

    def batches(self, source: Source) -> Iterator[Placed]:
        """See `Imported.batches`."""
        header = self.header()
        files = self._image_files[source.path]
        numbers = None if files is None else {key: number for number, key in enumerate(files)}
        by = "image_id" if files is None or self._annotations_of(source.path) is not None else "file_name"
        reading = _Reading(numbers, self._labels(header), self._names, by)
        elements = list_elements(source.path)
        first, optional = 0, None
        while detections := list(islice(elements, BATCH)):
            place = Place(source.path, first)
            optional = _optional(detections[0]) if optional is None else optional
            yield Placed(self.checked(header, reading.columns(detections, optional, place), place), place)
            first += len(detections)

    @cached_property
    def _image_files(self) -> dict[Path, dict[int | str, str] | None]:
        """Results file → image id → image file; None for a results file without annotations."""
        results = self._results()
        if isinstance(self.annotations, dict):
            unknown = sorted(set(self.annotations) - {file.stem for file in results})
            if unknown:
                known = ", ".join(file.stem for file in results)
                raise ParameterError(f"parameter 'annotations': no results file {unknown[0]!r}. Known: {known}")
        images = {file: _images(file) for file in self._annotation_files()}
        described = [(file, self._annotations_of(file)) for file in results]
        return {
            file: self._file_names(file) if annotations is None else images[annotations]
            for file, annotations in described
        }

    def _file_names(self, results: Path) -> dict[int | str, str] | None:
        """The image files that a results file without annotations names; None where `image_id` names the images."""
        first = next(iter(list_elements(results)), None)
        named = isinstance(first, dict) and isinstance(first.get("file_name"), str)
        if self.match == "image_id" or (self.match is None and not named):
            return None
        names: dict[int | str, str] = {}
        for row, detection in enumerate(list_elements(results)):
            name = detection.get("file_name") if isinstance(detection, dict) else None
            if not isinstance(name, str):
                raise DataError(f"expected text, found {_shown(name)}", file=results, row=row, field="file_name")
            names[name] = name
        return names

    def _results(self) -> list[Path]:
        if not self.weights.is_dir():
            return [self.weights]
        described = {resolved(file) for file in [*self._annotation_files(), self.categories] if isinstance(file, Path)}
        found = [file for file in listed(self.weights, "*.json") if resolved(file) not in described]
        if not found:
            raise DataError("no results here: expected files *.json", file=self.weights)
        return found

    def _annotation_files(self) -> list[Path]:
        if isinstance(self.annotations, dict):
            return [self.annotations[name] for name in sorted(self.annotations)]
        return [] if self.annotations is None else [self.annotations]

    def _annotations_of(self, results: Path) -> Path | None:
        return self.annotations.get(results.stem) if isinstance(self.annotations, dict) else self.annotations

    @cached_property
    def _names(self) -> dict[int, str]:
        """Name of each category."""
        if isinstance(self.categories, dict):
            return self.categories
        if self.categories is not None:
            return _categories(self.categories)
        found = [_categories(file) for file in self._annotation_files()]
        if any(names != found[0] for names in found):
            raise ParameterError(
                "detector 'coco_results': the annotation files number categories differently; say in the parameter "
                "'categories' which the detector's are"
            )
        return found[0] if found else {}

    def _labels(self, header: Header) -> dict[int | str, int]:
        """Index into the classes of each category, by number and by name."""
        index = {name: k for k, name in enumerate(header.classes) if k != header.background_index}
        numbered = {number: index[name] for number, name in self._names.items() if name in index}
        return dict[int | str, int](index) | numbered


class _Reading:
    """Turns detections of one source into columns.

    Args:
        numbers: Place of each image's id in the annotations, None without.
        labels: Class of each category.
        names: Name of each category.
        by: Field that names the image.
    """

    def __init__(
        self, numbers: dict[int | str, int] | None, labels: dict[int | str, int], names: dict[int, str], by: str
    ):
        self._by = by
        self._numbers = numbers
        self._labels = labels
        self._names = names

    def columns(self, detections: list[Any], optional: frozenset[str], place: Place) -> dict[str, Any]:
        """The regions table's columns but `region_id`."""
        for row, detection in enumerate(detections):
            if not isinstance(detection, dict):
                raise place.error(DataError(f"expected an object, found {_shown(detection)}", row=row))
            if _optional(detection) != optional:
                odd = min(_optional(detection) ^ optional)
                which = "the first detection does not have it" if odd in detection else "the first detection has it"
                raise place.error(DataError(f"all detections or none must have it, and {which}", row=row, field=odd))
        boxes = _numbers(detections, "bbox", "list", place)
        _check_boxes(boxes, place)
        columns: dict[str, Any] = {
            "image_id": [self._image(_field(d, self._by, r, place), r, place) for r, d in enumerate(detections)],
            "label": [self._label(_field(d, "category_id", r, place), r, place) for r, d in enumerate(detections)],
            "box": np.concatenate([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], axis=1),
            "score": _numbers(detections, "score", "one", place),
        }
        return columns | {name: _numbers(detections, name, OPTIONAL[name], place) for name in sorted(optional)}

    def _image(self, found: Any, row: int, place: Place) -> str:
        if isinstance(found, bool) or not isinstance(found, (int, str)):
            problem = f"expected a whole number or text, found {_shown(found)}"
            raise place.error(DataError(problem, row=row, field="image_id"))
        if self._numbers is None:
            return str(found)
        if found not in self._numbers:
            problem = f"{found!r} is not an image of the annotations of this file"
            raise place.error(DataError(problem, row=row, field="image_id"))
        return str(self._numbers[found])

    def _label(self, found: Any, row: int, place: Place) -> int:
        label = self._labels.get(found) if isinstance(found, (int, str)) and not isinstance(found, bool) else None
        if label is None:
            name = self._names.get(found) if isinstance(found, int) else None
            called = f"{_shown(found)}" + (f" ({name})" if name else "")
            known = ", ".join(map(str, self._labels)) or "none"
            problem = f"unknown category {called}. Known: {known}. Name it in the parameter 'categories'"
            raise place.error(DataError(problem, row=row, field="category_id"))
        return label


def _optional(detection: Any) -> frozenset[str]:
    """Which of the optional fields a detection has."""
    return frozenset(OPTIONAL.keys() & detection.keys()) if isinstance(detection, dict) else frozenset()


def _field(detection: dict[str, Any], name: str, row: int, place: Place) -> Any:
    if name not in detection:
        raise place.error(DataError("the field is missing", row=row, field=name))
    return detection[name]


def _numbers(detections: list[dict[str, Any]], name: str, kind: Literal["one", "list"], place: Place) -> np.ndarray:
    """A field of all detections: ndarray of shape (N,) or (N, width), float64.

    Raises:
        DataError: a value is absent, no number or no list of numbers, or of another length than that of the first.
    """
    values = [_field(detection, name, row, place) for row, detection in enumerate(detections)]
    try:
        array = np.array(values)
    except (ValueError, OverflowError):  # lists of different lengths
        array = np.array(None)
    if (
        array.dtype.kind in "iuf"
        and array.ndim == (2 if kind == "list" else 1)
        and (name != "bbox" or array.shape[1] == 4)
    ):
        return array.astype(np.float64)
    raise _odd_one(values, name, kind, place)


def _odd_one(values: list[Any], name: str, kind: Literal["one", "list"], place: Place) -> DataError:
    """An error about the first value that is not what the others are."""
    width = 4 if name == "bbox" else len(values[0]) if isinstance(values[0], list) else None
    for row, value in enumerate(values):
        numbers = value if kind == "list" and isinstance(value, list) else [value]
        if (kind == "list") != isinstance(value, list) or not all(type(n) in (int, float) for n in numbers):
            expected = "a list of numbers" if kind == "list" else "a number"
            problem = f"expected {expected}, found {_shown(value)}"
            return place.error(DataError(problem, row=row, field=name))
        if kind == "list" and len(value) != width:
            return place.error(DataError(f"expected {width} numbers, found {len(value)}", row=row, field=name))
    return place.error(DataError("expected numbers of ordinary size", row=0, field=name))


def _check_boxes(boxes: np.ndarray, place: Place) -> None:
    wrong = np.flatnonzero(~np.isfinite(boxes).all(axis=1) | (boxes[:, 2:] < 0).any(axis=1))
    if len(wrong):
        row = int(wrong[0])
        problem = f"expected x, y, width, height, finite and no size negative; found {boxes[row].tolist()}"
        raise place.error(DataError(problem, row=row, field="bbox"))


def _images(annotations: Path) -> dict[int | str, str]:
    """File of each image by its id, in the order of an annotation file."""
    found: dict[int | str, str] = {}
    for row, image in enumerate(list_elements(annotations, "images")):
        key, name = _pair(image, "file_name", annotations, f"images[{row}]")
        if key in found:
            raise DataError(f"id {key!r} occurs twice", file=annotations, row=f"images[{row}]", field="id")
        found[key] = name
    if not found:
        raise DataError("no images here; expected a COCO annotation file", file=annotations, field="images")
    return found


def _categories(annotations: Path) -> dict[int, str]:
    """Name of each category by its number."""
    found: dict[int, str] = {}
    for row, category in enumerate(list_elements(annotations, "categories")):
        key, name = _pair(category, "name", annotations, f"categories[{row}]")
        if isinstance(key, int):
            found[key] = name
    return found


def _pair(record: Any, field: str, file: Path, row: str) -> tuple[int | str, str]:
    """Id and one text field of a record."""
    values = record if isinstance(record, dict) else {}
    key, text = values.get("id"), values.get(field)
    if isinstance(key, bool) or not isinstance(key, (int, str)):
        raise DataError(f"expected a whole number or text, found {_shown(key)}", file=file, row=row, field="id")
    if not isinstance(text, str):
        raise DataError(f"expected text, found {_shown(text)}", file=file, row=row, field=field)
    return key, text


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else text[:77] + "…"
