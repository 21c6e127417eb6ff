"""COCO results: a JSON list of detections, as pycocotools and most detection libraries write it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import TypeAdapter
from pydantic.dataclasses import dataclass

from farther.detectors.base import register
from farther.detectors.imported.base import DetectionsSource, Place, Placed
from farther.detectors.imported.classes import ImportedClasses
from farther.detectors.imported.numbers import whole_number
from farther.detectors.imported.records import (
    OPTIONAL_FIELDS,
    Detection,
    Key,
    Record,
    check_fields,
    checked_records,
    columns_of,
)
from farther.errors import DataError, ParameterError, shorten
from farther.registry import STRICT
from farther.tables.folders import listed, resolved
from farther.tables.json_stream import list_elements

#: Records that are checked at once.
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
    """Detections from COCO results files: `image_id`, `category_id`, `bbox` (x, y, width, height) and `score` of each.

    Each may also have `logits`, `features`, `latent`, `box_variance` (of xmin, ymin, xmax and ymax)
    and `uncertainty`: then all must. Other fields are not read.

    Args:
        weights: A JSON file, or a folder of such files (`*.json`).
        score_threshold, score_tolerance, last_layer: See `Imported`.
        annotations: COCO annotation file whose `images` give the file of an `image_id`; where the
            results are a folder, one file for all, or one for each results file by its name without
            ending. Without, `image_id` is that of the images table; a number is also padded to 12
            digits, as COCO does.
        categories: `category_id` → name of the class, or an annotation file whose `categories` say
            so. Without, those of `annotations`; a `category_id` that is text is always the name
            itself.
        classes: Name of each value of `logits`, in order; without, the categories by rising number.
        match: Field that names the image: `image_id`, or `file_name` (as ultralytics writes it),
            whose end is compared with that of the image's path. Without, `file_name` where the
            first detection has it and there are no `annotations`.
        background_index: Which of them is "no object".
        activation: Turns the logits into the scores.
    """

    annotations: Path | dict[str, Path] | None = None
    match: Literal["image_id", "file_name"] | None = None

    FIELDS: ClassVar[dict[str, str]] = {"box": "bbox", "label": "category_id"}

    def sources(self) -> list[DetectionsSource]:
        """See `Imported.sources`."""
        sources = []
        for path, files in self._image_files.items():
            name = path.stem if len(self._image_files) > 1 else ""
            sources.append(
                DetectionsSource(name, path, None if files is None else tuple(files.values()))
            )
        return sources

    def files(self) -> list[Path]:
        """See `Imported.files`."""
        described = [*self._annotation_files(), self.categories, self.last_layer]
        files = [*self._results(), *(file for file in described if isinstance(file, Path))]
        for file in files:
            if not file.is_file():
                raise DataError("the file does not exist", file=file)
        return files

    def batches(self, source: DetectionsSource) -> Iterator[Placed]:
        """See `Imported.batches`."""
        header, files = self.header(), self._image_files[source.path]
        numbers = None if files is None else {key: str(number) for number, key in enumerate(files)}
        by = (
            "image_id"
            if files is None or self._annotations_of(source.path) is not None
            else "file_name"
        )
        labels, optional = self._labels(header), None
        for first, detections in _records(source.path, list[Detection]):
            place = Place(source.path, first)
            optional = OPTIONAL_FIELDS & detections[0].keys() if optional is None else optional
            check_fields(detections, by, optional, place)
            columns = columns_of(detections, by, numbers, labels, place)
            yield Placed(self.checked(header, columns, place), place)

    @cached_property
    def _image_files(self) -> dict[Path, dict[int | str, str] | None]:
        """Results file → image id → image file; None for a results file without annotations."""
        results = self._results()
        if isinstance(self.annotations, dict):
            unknown = sorted(set(self.annotations) - {file.stem for file in results})
            if unknown:
                known = ", ".join(file.stem for file in results)
                raise ParameterError(
                    f"parameter 'annotations': no results file {unknown[0]!r}. Known: {known}"
                )
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
        names = (
            one["file_name"]
            for _, detections in _records(results, list[_Named])
            for one in detections
        )
        return {name: name for name in names}

    def _results(self) -> list[Path]:
        if not self.weights.is_dir():
            return [self.weights]
        described = {
            resolved(file)
            for file in [*self._annotation_files(), self.categories]
            if isinstance(file, Path)
        }
        found = [file for file in listed(self.weights, "*.json") if resolved(file) not in described]
        if not found:
            raise DataError("no results here: expected files *.json", file=self.weights)
        return found

    def _annotation_files(self) -> list[Path]:
        if isinstance(self.annotations, dict):
            return [self.annotations[name] for name in sorted(self.annotations)]
        return [] if self.annotations is None else [self.annotations]

    def _annotations_of(self, results: Path) -> Path | None:
        return (
            self.annotations.get(results.stem)
            if isinstance(self.annotations, dict)
            else self.annotations
        )

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
                "detector 'coco_results': the annotation files number categories differently; set the parameter "
                "'categories' to the detector's"
            )
        return found[0] if found else {}


def _images(annotations: Path) -> dict[int | str, str]:
    """File of each image by its id, in the order of an annotation file."""
    found: dict[int | str, str] = {}
    files: set[str] = set()
    for first, images in _records(annotations, list[_Image], "images"):
        for row, image in enumerate(images, first):
            if image["id"] in found or image["file_name"] in files:
                field = "id" if image["id"] in found else "file_name"
                problem = f"{field} {shorten(image[field])} occurs twice"
                raise DataError(problem, file=annotations, row=f"images[{row}]", field=field)
            found[image["id"]] = image["file_name"]
            files.add(image["file_name"])
    if not found:
        raise DataError(
            "no images here; expected a COCO annotation file", file=annotations, field="images"
        )
    return found


def _categories(annotations: Path) -> dict[int, str]:
    """Name of each category by its number."""
    names = {}
    for _, categories in _records(annotations, list[_Category], "categories"):
        for category in categories:
            number = whole_number(category["id"])
            if number is not None:
                names[number] = category["name"]
    return names


def _records(path: Path, kind: Any, key: str | None = None) -> Iterator[tuple[int, list[Any]]]:
    """Batches of the elements of a JSON list, with the fields of a kind of record, and the number of the first of each.

    Raises:
        DataError: see `list_elements`; or an element is not such a record.
    """
    schema, elements, first = TypeAdapter(kind), list_elements(path, key), 0
    while records := list(islice(elements, BATCH)):
        yield first, checked_records(schema, records, first, path, key)
        first += len(records)
