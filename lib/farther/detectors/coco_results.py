"""COCO results: a JSON list of detections, as most detection libraries write it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import TypeAdapter
from pydantic.dataclasses import dataclass

from farther.detectors.adapter import register
from farther.detectors.imported.base import DetectionBatch, DetectionsSource, RowLocation
from farther.detectors.imported.classes import ImportedClasses
from farther.detectors.imported.numbers import whole_number
from farther.detectors.imported.recognition import recognise_results
from farther.detectors.imported.records import (
    DETECTIONS,
    OPTIONAL_FIELDS,
    Key,
    Record,
    check_fields,
    checked_records,
    columns_of,
    with_upright_boxes,
)
from farther.detectors.recognition import IdClasses, RecognisedFile
from farther.errors import DataError, ParameterError, shorten
from farther.naming.registry import STRICT
from farther.tables.folders import listed, resolved
from farther.tables.json_stream import list_elements

#: Number of records in a batch.
BATCH = 4096


class _Named(Record):
    file_name: str


class _Image(_Named):
    id: Key


class _Category(Record):
    id: Key
    name: str


@register("coco_results")
@dataclass(config=STRICT, kw_only=True)
class CocoResults(ImportedClasses):
    """Detections from COCO results files.

    Each detection has `image_id`, `category_id`, `bbox` (x, y, width, height) and `score`. It may
    also have `logits`, `features`, `latent`, `box_variance` (of xmin, ymin, xmax and ymax) and
    `uncertainty`: then all must. Other fields are not read.

    Args:
        weights: A JSON file, or a folder of such files (`*.json`).
        score_threshold, score_tolerance, last_layer: See `Imported`.
        annotations: COCO annotation file whose `images` give the file of an `image_id`; where the
            results are a folder, one file for all, or one for each results file by its name without
            ending. Without it, `image_id` is that of the images table; a number is also padded to
            12 digits, as COCO does.
        categories: Name of the class of each `category_id`, or an annotation file with
            `categories`. By default, those of `annotations`; a `category_id` that is text is always
            the name itself, and one without a category is the class called `category_name`.
        classes: Name of each value of `logits`, in order; by default, the categories by ascending
            number.
        match: Field that names the image: `image_id`, or `file_name` (as ultralytics writes it),
            which is compared with the end of the image's path. By default, `file_name` if the first
            detection has it and there are no `annotations`.
        background_index: Number of the class "no object".
        activation: Converts the logits to the scores.
    """

    RECOGNISED_FILES: ClassVar[tuple[str, ...]] = ("*.json", "*.pkl", "*.pth")

    annotations: Path | dict[str, Path] | None = None
    match: Literal["image_id", "file_name"] | None = None

    FIELDS: ClassVar[dict[str, str]] = {"box": "bbox", "label": "category_id"}

    @classmethod
    def recognises(cls, path: Path, id_classes: IdClasses) -> RecognisedFile | None:
        """COCO results; see `Adapter`."""
        return recognise_results(path, id_classes, are_coco_results=True)

    def sources(self) -> list[DetectionsSource]:
        """See `Imported.sources`."""
        sources = []
        for path, files in self._image_files.items():
            name = path.stem if len(self._image_files) > 1 else ""
            image_files = None if files is None else tuple(files.values())
            sources.append(DetectionsSource(name, path, image_files))
        return sources

    def files(self) -> list[Path]:
        """See `Imported.files`."""
        files = [*self._results(), *self._annotation_files()]
        optional_files = (self.categories, self.last_layer)
        files += [file for file in optional_files if isinstance(file, Path)]
        for file in files:
            if not file.is_file():
                raise DataError("the file does not exist", file=file)
        return files

    def batches(self, source: DetectionsSource) -> Iterator[DetectionBatch]:
        """See `Imported.batches`."""
        header = self.header()
        labels = self.labels(header)
        image_files = self._image_files[source.path]
        numbers = None
        by = "image_id"
        if image_files is not None:
            numbers = {image_id: str(number) for number, image_id in enumerate(image_files)}
            if self._annotations_of(source.path) is None:
                by = "file_name"

        optional: frozenset[str] | None = None
        for first, elements in _parts(source.path):
            upright = with_upright_boxes(elements, source.path, first)
            detections = checked_records(DETECTIONS, upright.detections, first, source.path)
            location = RowLocation(source.path, first)
            if optional is None:
                optional = OPTIONAL_FIELDS & detections[0].keys()
            check_fields(detections, by, optional, location)
            columns = columns_of(detections, by, numbers, labels, location)
            yield DetectionBatch(
                self.checked(header, columns, location),
                location,
                upright.oriented,
                upright.unread,
            )

    @cached_property
    def _image_files(self) -> dict[Path, dict[int | str, str] | None]:
        """Image file of each image id, by results file; None where `image_id` names the images."""
        results_files = self._results()
        if isinstance(self.annotations, dict):
            stems = [file.stem for file in results_files]
            unknown = sorted(set(self.annotations) - set(stems))
            if unknown:
                raise ParameterError(
                    f"parameter 'annotations': no results file {unknown[0]!r}. Known: "
                    f"{', '.join(stems)}"
                )

        files_by_annotations = {file: _images(file) for file in self._annotation_files()}
        image_files: dict[Path, dict[int | str, str] | None] = {}
        for results_file in results_files:
            annotations = self._annotations_of(results_file)
            if annotations is None:
                image_files[results_file] = self._file_names(results_file)
            else:
                image_files[results_file] = files_by_annotations[annotations]
        return image_files

    def _file_names(self, results: Path) -> dict[int | str, str] | None:
        """The image files that a results file names itself; None where `image_id` names images."""
        if self.match == "image_id":
            return None
        if self.match is None:
            first = next(iter(list_elements(results)), None)
            if not isinstance(first, dict) or not isinstance(first.get("file_name"), str):
                return None
        file_names: dict[int | str, str] = {}
        for _, detections in _records(results, list[_Named]):
            for detection in detections:
                file_names[detection["file_name"]] = detection["file_name"]
        return file_names

    def _results(self) -> list[Path]:
        """The results files."""
        if not self.weights.is_dir():
            return [self.weights]
        other_files = {resolved(file) for file in self._annotation_files()}
        if isinstance(self.categories, Path):
            other_files.add(resolved(self.categories))
        results_files = [
            file for file in listed(self.weights, "*.json") if resolved(file) not in other_files
        ]
        if not results_files:
            raise DataError("no results here: expected files *.json", file=self.weights)
        return results_files

    def _annotation_files(self) -> list[Path]:
        """The annotation files."""
        if self.annotations is None:
            return []
        if isinstance(self.annotations, dict):
            return [self.annotations[name] for name in sorted(self.annotations)]
        return [self.annotations]

    def _annotations_of(self, results: Path) -> Path | None:
        """The annotation file of a results file."""
        if isinstance(self.annotations, dict):
            return self.annotations.get(results.stem)
        return self.annotations

    @cached_property
    def _names(self) -> dict[int, str]:
        """Name of each category, by its number."""
        if isinstance(self.categories, dict):
            return self.categories
        if self.categories is not None:
            return _categories(self.categories)
        names_by_file = [_categories(file) for file in self._annotation_files()]
        if not names_by_file:
            return {}
        if any(names != names_by_file[0] for names in names_by_file):
            raise ParameterError(
                "detector 'coco_results': the annotation files number categories differently; set "
                "the parameter 'categories' to the detector's"
            )
        return names_by_file[0]


def _images(annotations: Path) -> dict[int | str, str]:
    """File of each image by its id, in the order of an annotation file."""
    file_by_id: dict[int | str, str] = {}
    files: set[str] = set()
    for first, images in _records(annotations, list[_Image], "images"):
        for row, image in enumerate(images, first):
            repeated = None
            if image["id"] in file_by_id:
                repeated = "id"
            elif image["file_name"] in files:
                repeated = "file_name"
            if repeated is not None:
                raise DataError(
                    f"{repeated} {shorten(image[repeated])} occurs twice",
                    file=annotations,
                    row=f"images[{row}]",
                    field=repeated,
                )
            file_by_id[image["id"]] = image["file_name"]
            files.add(image["file_name"])
    if not file_by_id:
        raise DataError(
            "no images here; expected a COCO annotation file", file=annotations, field="images"
        )
    return file_by_id


def _categories(annotations: Path) -> dict[int, str]:
    """Name of each category of an annotation file, by its number."""
    names = {}
    for _, categories in _records(annotations, list[_Category], "categories"):
        for category in categories:
            number = whole_number(category["id"])
            if number is not None:
                names[number] = category["name"]
    return names


def _records(path: Path, kind: Any, key: str | None = None) -> Iterator[tuple[int, list[Any]]]:
    """Yields batches of the elements of a JSON list, with the number of the first of each.

    Args:
        path: The file.
        kind: Type of a list of such elements.
        key: Key of the list, if the file is an object.

    Raises:
        DataError: see `list_elements`; or an element is not of this type.
    """
    schema = TypeAdapter(kind)
    for first, elements in _parts(path, key):
        yield first, checked_records(schema, elements, first, path, key)


def _parts(path: Path, key: str | None = None) -> Iterator[tuple[int, list[Any]]]:
    """Yields `BATCH` elements of a JSON list at a time, with the number of the first."""
    elements = list_elements(path, key)
    first = 0
    while part := list(islice(elements, BATCH)):
        yield first, part
        first += len(part)
