"""Files of detections, recognised from their content."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import groupby
from math import floor
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from farther.detectors.imported.base import DetectionsSource
from farther.detectors.imported.columns import FRACTION, OPTIONAL
from farther.detectors.imported.formats import (
    CLASSES,
    PICKLES,
    TEXTS,
    Batch,
    Results,
    files_of,
    open_results,
)
from farther.detectors.imported.images import BenchmarkImage, NamedImages
from farther.detectors.imported.numbers import whole_number
from farther.detectors.imported.records import as_integer
from farther.detectors.imported.spool import notes_of
from farther.detectors.imported.ultralytics import BOX_CELLS
from farther.detectors.recognition import IdClasses, RecognisedFile
from farther.errors import DataError
from farther.tables.endings import JSON, TABLES, TEXT, has_ending
from farther.tables.files import is_file, is_folder, read_text
from farther.tables.folders import find_file, listed

#: Number of labelled images from which on a numbering of classes can be doubted.
MIN_IMAGES = 10
#: Number of labelled images from which on no further subset is read for this.
ENOUGH_IMAGES = 1_000
#: Fraction of these images whose best detection must be of a class that is labelled there, for a
#: numbering to fit.
AGREEING = 0.3
#: Number of text files from which the order of columns is recognised.
SAMPLE = 200

#: Name or number of a class.
ClassKey = int | str


def recognise_results(
    path: Path, id_classes: IdClasses, *, are_coco_results: bool
) -> RecognisedFile | None:
    """Parameters for a file or folder of detections; None where it is none.

    Args:
        path: The file or folder.
        id_classes: The classes of the ID dataset.
        are_coco_results: Recognise COCO results; else all other formats.

    Raises:
        DataError: its detections cannot be read, or are of a class that is not known.
    """
    if path.name in PICKLES:
        problem = f"holds pickled objects, which can run any code: {PICKLES[path.name]}"
        raise DataError(problem, file=path)
    files = _files(path)
    if not files:
        return None
    columns: Sequence[str] | None = None
    if has_ending(files[0], TEXT):
        columns = _columns_of_texts(files)
    results_by_file = {file: open_results(file, columns) for file in files}
    formats = {results.format for results in results_by_file.values() if results.format}
    if (formats == {"COCO results"}) != are_coco_results:
        return None
    summary = _Summary.of(results_by_file.values())
    recognised = _recognised(path, summary, results_by_file, id_classes)
    if are_coco_results:
        return recognised
    params = dict(recognised.params)
    assumed = recognised.assumed
    if summary.largest_edge <= FRACTION:
        params["fractions"] = True
    if columns and columns != TEXTS[0]:
        params["columns"] = list(columns)
        about_columns = f"columns are assumed to be {' '.join(columns)}"
        assumed = f"{about_columns}; {assumed}" if assumed else about_columns
    return replace(recognised, params=params, assumed=assumed)


def recognise_opened(
    path: Path, results_by_file: Mapping[Path, Results], id_classes: IdClasses
) -> RecognisedFile:
    """Parameters for opened files of detections.

    Args:
        path: The file, or the folder of the files.
        results_by_file: The files.
        id_classes: The classes of the ID dataset.

    Raises:
        DataError: there are no detections, or they cannot be read, or are of a class that is not
            known.
    """
    summary = _Summary.of(results_by_file.values())
    return _recognised(path, summary, results_by_file, id_classes)


def _recognised(
    path: Path,
    summary: _Summary,
    results_by_file: Mapping[Path, Results],
    id_classes: IdClasses,
) -> RecognisedFile:
    """Parameters for summarised detections; see `recognise_opened`."""
    if not summary.count:
        raise DataError("no detections here", file=path)
    classes, assumed = _classes(summary, results_by_file, id_classes)
    params: dict[str, Any] = {"score_threshold": _rounded_down(summary.lowest_score), **classes}
    content = (
        f"{summary.count:,} detections of {len(summary.best_by_image):,} images, "
        f"{summary.optional_fields()}"
    )
    content = "; ".join([content, *notes_of(summary.oriented, summary.unread)])
    return RecognisedFile(params, content, assumed)


def _rounded_down(score: float) -> float:
    """The score, rounded down to four decimal places."""
    return floor(round(score * 1e4, 6)) / 1e4


def _files(path: Path) -> list[Path]:
    """The files of detections; none where there are other files."""
    if path.is_file():
        if has_ending(path, (*TABLES, *JSON)) or _is_text(path):
            return [path]
        return []
    if is_file(path / "regions.json") or listed(path, "*.parquet"):
        return []
    files = files_of(path)
    if not files:
        for folder in listed(path, "*"):
            if is_folder(folder):
                files += files_of(folder)
    for file in files:
        if has_ending(file, TEXT) and not _is_text(file):
            return []
    return files


def _is_text(path: Path) -> bool:
    """Whether a file is text that begins with a line of numbers, or is empty."""
    if not has_ending(path, TEXT):
        return False
    lines = read_text(path).splitlines()
    if not lines:
        return True
    cells = lines[0].split()
    return len(cells) > 1 and all(_is_numeric(cell) for cell in cells)


def _is_numeric(cell: str) -> bool:
    return cell.replace(".", "").replace("-", "").replace("e", "").isdecimal()


def _columns_of_texts(files: Sequence[Path]) -> Sequence[str]:
    """The order of columns of text files.

    The first of `TEXTS` with which all boxes lie in an image and all classes are whole numbers. The
    first of all if the files are damaged: its reader says where.
    """
    rows: list[list[str]] = []
    for file in files[:SAMPLE]:
        rows += [line.split() for line in read_text(file).splitlines()]
    if any(not 6 <= len(row) <= BOX_CELLS for row in rows):
        return TEXTS[0]
    try:
        values = np.array([row[:6] for row in rows], float).reshape(-1, 6)
    except ValueError:
        return TEXTS[0]
    if not np.isfinite(values).all():
        return TEXTS[0]
    for names in TEXTS:
        if _is_plausible(dict(zip(names, values.T, strict=True))):
            return names
    return TEXTS[0]


def _is_plausible(columns: dict[str, np.ndarray]) -> bool:
    """Whether columns have scores from 0 to 1 and boxes that can be boxes."""
    score = columns["score"]
    is_plausible = (score >= 0) & (score <= 1)
    if "cx" in columns:
        is_plausible &= _are_within_image(columns["cx"], columns["width"])
        is_plausible &= _are_within_image(columns["cy"], columns["height"])
    elif "xmax" in columns:
        is_plausible &= columns["xmax"] >= columns["xmin"]
        is_plausible &= columns["ymax"] >= columns["ymin"]
    return bool(is_plausible.all())


def _are_within_image(center: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Mask of the boxes whose edges, as fractions of an axis, lie in the image."""
    low = center - size / 2
    high = center + size / 2
    return (low > -0.01) & (low < 1.01) & (high > -0.01) & (high < 1.01)


@dataclass(frozen=True)
class _BestDetection:
    """Score and class of the best detection of an image."""

    score: float
    category: ClassKey


@dataclass
class _Summary:
    """Summary of all detections, with the classes and images that they name.

    Args:
        count: Number of the detections.
        lowest_score: Lowest score.
        largest_edge: Largest number of a box.
        logit_count: Number of logits of the last detection; 0 without logits.
        classes: Names or numbers of classes.
        best_by_image: The best detection of each image.
        fields: Names of the fields of the records.
        oriented: Number of boxes that are envelopes of oriented boxes or outlines.
        unread: Names of columns or fields that are not read.
    """

    count: int = 0
    lowest_score: float = 1.0
    largest_edge: float = 0.0
    logit_count: int = 0
    classes: set[ClassKey] = field(default_factory=set)
    best_by_image: dict[str, _BestDetection] = field(default_factory=dict)
    fields: set[str] = field(default_factory=set)
    oriented: int = 0
    unread: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, results: Iterable[Results]) -> _Summary:
        """The summary of opened files.

        Raises:
            DataError: a record is not a detection.
        """
        summary = cls()
        for opened in results:
            for batch in opened.batches():
                summary.add(batch)
        return summary

    def add(self, batch: Batch) -> None:
        """Adds the records of a batch.

        Raises:
            DataError: a record is not a detection; names file and row.
        """
        for row, record in enumerate(batch.records, batch.first):
            if not _is_detection(record):
                problem = "expected a list of detections with image_id, category_id, bbox and score"
                raise DataError(problem, file=batch.file, row=row)
            self._add(record)
        self.oriented += batch.oriented
        self.unread |= batch.unread

    def _add(self, record: dict[str, Any]) -> None:
        category = as_integer(record["category_id"])
        score = float(record.get("score", 1.0))
        edges = [float(edge) for edge in record["bbox"]]
        self.count += 1
        self.lowest_score = min(self.lowest_score, score)
        self.largest_edge = max(self.largest_edge, *edges, 0.0)
        self.classes.add(category)
        image = str(record.get("file_name", as_integer(record.get("image_id"))))
        best = self.best_by_image.get(image)
        if best is None or score > best.score:
            self.best_by_image[image] = _BestDetection(score, category)
        self.fields |= record.keys()
        logits = record.get("logits")
        self.logit_count = len(logits) if isinstance(logits, list) else 0

    def read_numbers_and_names(self, categories: Sequence[str]) -> None:
        """Converts texts that are numbers to numbers, and numbers that are names to names.

        Args:
            categories: Names of the ID dataset's classes.
        """
        texts = {str(name) for name in self.classes}
        number_by_name = {name: whole_number(name) for name in self.classes}
        renamed: dict[ClassKey, ClassKey] = {}
        if texts <= set(categories):
            renamed = {name: str(name) for name in self.classes}
        elif texts.isdisjoint(categories):
            for name, number in number_by_name.items():
                if number is None:
                    return
                renamed[name] = number
        if not renamed:
            return
        self.classes = set(renamed.values())
        for image, best in self.best_by_image.items():
            self.best_by_image[image] = _BestDetection(best.score, renamed[best.category])

    def optional_fields(self) -> str:
        """The optional fields, and the two that many methods need where they are absent."""
        present = [name.replace("_", " ") for name in OPTIONAL if name in self.fields]
        absent = [name for name in ("logits", "features") if name not in self.fields]
        parts = []
        if present:
            parts.append(f"with {', '.join(present)}")
        if absent:
            parts.append(f"without {' and '.join(absent)}")
        return "; ".join(parts)


def _is_detection(record: Any) -> bool:
    """Whether a record has a class, a box, and a score if any."""
    if not isinstance(record, dict):
        return False
    box = record.get("bbox")
    if not isinstance(box, (list, tuple)):
        return False
    has_class = isinstance(as_integer(record.get("category_id")), (int, str))
    has_score = isinstance(record.get("score", 1.0), (int, float))
    return has_class and has_score and all(isinstance(edge, (int, float)) for edge in box)


def _classes(
    summary: _Summary,
    results_by_file: Mapping[Path, Results],
    id_classes: IdClasses,
) -> tuple[dict[str, Any], str]:
    """The parameters about classes.

    Returns:
        `classes`, and `categories` where the results have numbers; and what was assumed about the
        numbers.
    """
    summary.read_numbers_and_names(id_classes.categories)
    names = {name for name in summary.classes if isinstance(name, str)}
    for results in results_by_file.values():
        names.update(results.classes)
    if names:
        return {"classes": _class_names(summary, names, id_classes)}, ""

    file, results = next(iter(results_by_file.items()))
    name_by_number = _names_beside(file)
    assumed = ""
    if not name_by_number:
        name_by_number, assumed = _assumed_numbers(summary, results, id_classes)
    unknown = sorted(number for number in summary.classes if number not in name_by_number)
    if unknown:
        column = "class"
        place = f"{CLASSES} beside the file, one per line, that of class 0 first"
        if results.first_class is None:  # COCO
            column = "category_id"
            place = "`category_id`"
        problem = (
            f"{column} {unknown[0]} is not a class of the ID dataset ({json.dumps(name_by_number)})"
        )
        raise DataError(f"{problem}; write the names into {place}", file=file)
    return {"classes": list(name_by_number.values()), "categories": name_by_number}, assumed


def _class_names(summary: _Summary, names: Set[str], id_classes: IdClasses) -> list[str]:
    """The classes of results with names.

    Classes of the ID dataset that were not detected are the detector's, too, unless its logits are
    fewer.
    """
    other_names = sorted(names - set(id_classes.categories))
    synonyms = id_classes.with_synonym(other_names)
    known = [name for name in id_classes.categories if name not in synonyms or name in names]
    if summary.logit_count and summary.logit_count < len({*known, *names}):
        known = [name for name in known if name in names]
    return [*known, *other_names]


def _names_beside(file: Path) -> dict[int, str]:
    """Names of classes by number in the list beside a file or its folder; {} without one."""
    for folder in (file.parent, file.parent.parent):
        list_file = find_file(folder / CLASSES)
        if is_file(list_file):
            lines = [line.strip() for line in read_text(list_file).splitlines()]
            return dict(enumerate(filter(None, lines)))
    return {}


@dataclass(frozen=True)
class Numbering:
    """Names of classes by number, and the source of the numbers in words."""

    names: dict[int, str]
    words: str


def _assumed_numbers(
    summary: _Summary, results: Results, id_classes: IdClasses
) -> tuple[dict[int, str], str]:
    """Names of classes by number, and what was assumed about the numbers.

    The usual numbering of the format is tested on images whose objects are labelled. Where it does
    not fit and another one does, that one is assumed.
    """
    usual, *alternatives = _numberings(summary, results, id_classes)
    labelled = _LabelledDetections.of(summary, results, id_classes)
    usual_count = labelled.count(usual.names)
    assumed = f"classes are numbers: assumed to be {usual.words}"
    if labelled.agree(usual_count) and summary.classes <= usual.names.keys():
        return usual.names, assumed
    if labelled.has_enough:
        for numbering in alternatives:
            count = labelled.count(numbering.names)
            if summary.classes <= numbering.names.keys() and labelled.agree(count):
                text = (
                    f"classes are numbers: assumed to be {numbering.words}, as in {count} of "
                    f"{labelled.image_count} labelled images the best detection then has a "
                    f"labelled class (else in {usual_count})"
                )
                return numbering.names, text
    if not labelled.has_enough or labelled.agree(usual_count):
        return usual.names, assumed
    advice = f"write the names into {CLASSES} beside the files, one per line, that of class 0 first"
    if results.first_class is None:
        advice = "write the right names into `categories`"
    doubt = (
        f"in only {usual_count} of {labelled.image_count} labelled images does the best detection "
        "have a labelled class"
    )
    return usual.names, f"{assumed}, but {doubt}: {advice}"


def _numberings(summary: _Summary, results: Results, id_classes: IdClasses) -> list[Numbering]:
    """Possible numberings of the ID dataset's classes, the usual one of the format first."""
    in_order = id_classes.categories
    if id_classes.numbers:
        in_order = [name for _, name in sorted(id_classes.numbers.items())]
    of_dataset = Numbering(dict(id_classes.numbers), "those of the ID dataset's files")
    from_0 = Numbering(dict(enumerate(in_order)), "the ID dataset's, in its order, from 0")
    from_1 = Numbering(dict(enumerate(in_order, start=1)), "the ID dataset's, in its order, from 1")
    if results.first_class is not None:
        usual = from_0
    elif id_classes.format == "yolo" and 0 not in summary.classes:
        usual = from_1  # ultralytics numbers user-defined classes from 1
    elif id_classes.numbers:
        usual = of_dataset
    else:
        usual = from_1
    numberings = [usual]
    for numbering in (of_dataset, from_0, from_1):
        is_new = all(numbering.names != known.names for known in numberings)
        if numbering.names and is_new:
            numberings.append(numbering)
    return numberings


@dataclass(frozen=True)
class _LabelledDetections:
    """The best detection of each image whose objects are labelled.

    Args:
        numbers: Number of the class of each.
        labelled: Names of the classes that are labelled in its image.
    """

    numbers: list[int]
    labelled: list[frozenset[str]]

    @classmethod
    def of(cls, summary: _Summary, results: Results, id_classes: IdClasses) -> _LabelledDetections:
        """The best detections in images of the ID dataset.

        Its subsets are read until there are `ENOUGH_IMAGES`.
        """
        source = DetectionsSource("", Path(), named=results.named)
        numbers: list[int] = []
        labelled: list[frozenset[str]] = []
        for _, images_of_subset in groupby(id_classes.images(), attrgetter("subset")):
            images: list[BenchmarkImage] = []
            classes_by_image: list[frozenset[str]] = []
            for image in images_of_subset:
                images.append(BenchmarkImage(image.image_id, "", image.file, "", image.subset))
                classes_by_image.append(image.classes)

            images_by_name = NamedImages(images, range(len(images)))
            for name, best in summary.best_by_image.items():
                matching_images = images_by_name.fitting(source, name)
                if len(matching_images) != 1 or not isinstance(best.category, int):
                    continue
                classes = classes_by_image[matching_images[0]]
                if classes:
                    numbers.append(best.category)
                    labelled.append(classes)
            if len(numbers) >= ENOUGH_IMAGES:
                break
        return cls(numbers, labelled)

    @property
    def image_count(self) -> int:
        """Number of the images."""
        return len(self.numbers)

    @property
    def has_enough(self) -> bool:
        """Whether there are enough images to doubt a numbering."""
        return self.image_count >= MIN_IMAGES

    def count(self, names: Mapping[int, str]) -> int:
        """Number of images whose best detection is of a class that is labelled there.

        Args:
            names: Names of classes by number.
        """
        count = 0
        for number, labelled in zip(self.numbers, self.labelled, strict=True):
            if names.get(number) in labelled:
                count += 1
        return count

    def agree(self, count: int) -> bool:
        """Whether a number of images is enough for a numbering to fit."""
        return count >= AGREEING * self.image_count
