"""Files of detections, recognised from what they hold."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import floor
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from farther import datasets
from farther.detectors.imported.base import DetectionsSource
from farther.detectors.imported.columns import OPTIONAL
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
from farther.errors import DataError
from farther.projects.proposals import Lookup, propose
from farther.projects.recognise import Dataset
from farther.tables.files import is_file, is_folder, read_text
from farther.tables.folders import listed

#: Boxes in pixels have a side above this; rounded fractions are up to this.
FRACTION = 1.5
#: Numbers of classes are doubted where, of at least so many images, this part of the best
#: detections are of a class that is labelled in the image.
IMAGES, AGREEING = 10, 0.3
#: Texts are told from a row of labels by this many files.
SAMPLE = 200


@dataclass(frozen=True)
class RecognisedResults:
    """Files of detections, as they were recognised.

    Args:
        entry: Adapter and parameters of section `detectors`.
        content: How many detections there are, of what, in a few words.
        assumed: What the files do not say, in a sentence; empty where they say everything.
    """

    entry: dict[str, Any]
    content: str
    assumed: str = ""


def recognise_results(
    path: Path, dataset: Dataset, lookup: Lookup | None = None
) -> RecognisedResults | None:
    """Adapter and parameters of a file or folder of detections; None where it is none.

    Args:
        path, dataset, lookup: See `farther.projects.recognise_detector`.

    Raises:
        DataError: it holds detections that cannot be read, or of a class that is not known.
    """
    if path.name in PICKLES:
        raise DataError(
            f"holds pickled objects, which can run any code: {PICKLES[path.name]}", file=path
        )
    files = _files(path)
    if not files:
        return None
    columns = _columns_of_texts(files) if files[0].suffix == ".txt" else None
    opened = [(file, open_results(file, columns)) for file in files]
    found = _Found()
    for _, results in opened:
        for batch in results.batches():
            found.add(batch)
    if not found.count:
        raise DataError("no detections here", file=path)
    formats = {results.format for _, results in opened if results.format}
    classes, assumed = _classes(found, opened, dataset, lookup)
    params = {"score_threshold": floor(round(found.lowest * 1e4, 6)) / 1e4, **classes}
    if formats != {"COCO results"}:
        extra = {"fractions": True} if found.largest <= FRACTION else {}
        read = {"columns": list(columns)} if columns and columns != TEXTS[0] else {}
        entry = {"adapter": "detections", "params": {**params, **extra, **read}}
        told = f"columns are assumed to be {' '.join(columns)}" if read and columns else ""
        assumed = "; ".join(filter(None, (told, assumed)))
    else:
        entry = {"adapter": "coco_results", "params": params}
    content = f"{found.count:,} detections of {len(found.images):,} images, {found.optional()}"
    return RecognisedResults(entry, content, assumed)


def _files(path: Path) -> list[Path]:
    """The files of detections, none where there are others."""
    if path.is_file():
        return [path] if path.suffix in (".csv", ".tsv", ".json") or _is_text(path) else []
    if is_file(path / "regions.json") or listed(path, "*.parquet"):
        return []
    found = files_of(path)
    if not found:
        for folder in listed(path, "*"):
            if is_folder(folder):
                found += files_of(folder)
    return found if all(file.suffix != ".txt" or _is_text(file) for file in found) else []


def _is_text(path: Path) -> bool:
    """Whether a file is text that begins with a line of numbers, or is empty."""
    if path.suffix != ".txt":
        return False
    line = next(iter(read_text(path).splitlines()), "0 0")
    cells = line.split()
    return len(cells) > 1 and all(
        cell.replace(".", "").replace("-", "").replace("e", "").isdecimal() for cell in cells
    )


def _columns_of_texts(files: Sequence[Path]) -> Sequence[str]:
    """The order of columns of text files in which all boxes lie in an image and all classes are whole numbers.

    Raises:
        DataError: it is none that is known.
    """
    rows = [line.split() for file in files[:SAMPLE] for line in read_text(file).splitlines()]
    width = min((len(row) for row in rows), default=6)
    if width < 6:
        return TEXTS[0]  # whose reader says what is missing
    try:
        values = np.array([row[:6] for row in rows], float).reshape(-1, 6)
    except ValueError:
        return TEXTS[0]  # as before
    if not np.isfinite(values).all():
        return TEXTS[0]
    return next(
        (names for names in TEXTS if _fits(dict(zip(names, values.T, strict=True)))), TEXTS[0]
    )


def _fits(of: dict[str, np.ndarray]) -> bool:
    score = (of["score"] >= 0) & (of["score"] <= 1)
    if "cx" in of:
        inside = [
            of[a] + sign * of[b] / 2
            for a, b in (("cx", "width"), ("cy", "height"))
            for sign in (-1, 1)
        ]
        score &= np.all([(side > -0.01) & (side < 1.01) for side in inside], axis=0)
    elif "xmax" in of:
        score &= (of["xmax"] >= of["xmin"]) & (of["ymax"] >= of["ymin"])
    return bool(score.all())


@dataclass
class _Found:
    """What all detections have in common, and the classes and images that they name.

    Args:
        count: Of the detections.
        lowest: Of the scores.
        largest: Of the numbers of boxes.
        logits: How many there are.
        classes: Names or numbers.
        images: Score and class of the best detection of each.
        fields: Of the records.
    """

    count: int = 0
    lowest: float = 1.0
    largest: float = 0.0
    logits: int = 0
    classes: set[int | str] = field(default_factory=set)
    images: dict[str, tuple[float, int | str]] = field(default_factory=dict)
    fields: set[str] = field(default_factory=set)

    def add(self, batch: Batch) -> None:
        for row, one in enumerate(batch.records, batch.first):
            given = one if isinstance(one, dict) else {}
            category, score, box = (
                as_integer(given.get("category_id")),
                given.get("score", 1.0),
                given.get("bbox"),
            )
            is_box = isinstance(box, (list, tuple)) and all(
                isinstance(side, (int, float)) for side in box
            )
            if (
                not isinstance(category, (int, str))
                or not isinstance(score, (int, float))
                or not is_box
            ):
                problem = "expected a list of detections with image_id, category_id, bbox and score"
                raise DataError(problem, file=batch.file, row=row)
            self.count += 1
            self.lowest, self.largest = (
                min(self.lowest, float(score)),
                max(self.largest, *map(float, box or (0,))),
            )
            self.classes.add(category)
            image = str(given.get("file_name", as_integer(given.get("image_id"))))
            self.images[image] = max(
                self.images.get(image, (-1.0, category)),
                (float(score), category),
                key=itemgetter(0),
            )
            self.fields |= given.keys()
            self.logits = len(given["logits"]) if isinstance(given.get("logits"), list) else 0

    def read_numbers_and_names(self, categories: Sequence[str]) -> None:
        """Takes texts that are numbers for numbers, and numbers that are names of classes for names.

        Args:
            categories: Names of the ID dataset's classes.
        """
        texts = {str(name) for name in self.classes}
        numbers = {name: whole_number(name) for name in self.classes}
        renamed: dict[int | str, int | str] = {}
        if texts <= set(categories):
            renamed = {name: str(name) for name in self.classes}
        elif None not in numbers.values() and texts.isdisjoint(categories):
            renamed = {name: number for name, number in numbers.items() if number is not None}
        if renamed:
            self.classes = set(renamed.values())
            self.images = {
                image: (score, renamed[name]) for image, (score, name) in self.images.items()
            }

    def optional(self) -> str:
        """The optional fields that there are, and the two that many methods read where they are not there."""
        there = [name.replace("_", " ") for name in OPTIONAL if name in self.fields]
        absent = [name for name in ("logits", "features") if name not in self.fields]
        parts = [f"with {', '.join(there)}"] * bool(there) + [
            f"without {' and '.join(absent)}"
        ] * bool(absent)
        return "; ".join(parts)


def _classes(
    found: _Found, opened: Sequence[tuple[Path, Results]], dataset: Dataset, lookup: Lookup | None
) -> tuple[dict[str, Any], str]:
    """The classes, their numbers where the results have numbers, and what was assumed about these."""
    found.read_numbers_and_names(dataset.categories)
    names = {name for name in found.classes if isinstance(name, str)}
    names |= {name for _, results in opened for name in results.classes}
    if names:  # classes of the ID dataset that were not detected are the detector's, too, unless its logits are fewer
        others = sorted(names - set(dataset.categories))
        synonyms = {
            one.id_class
            for one in propose(others, dataset.categories, lookup)
            if one.relation == "same"
        }
        known = [name for name in dataset.categories if name not in synonyms or name in names]
        if found.logits and found.logits < len({*known, *names}):
            known = [name for name in known if name in names]
        return {"classes": [*known, *others]}, ""
    file, results = opened[0]
    numbers = _listed_beside(file)
    assumed = ""
    if not numbers:
        numbers, assumed = _assumed_numbers(found, results, dataset)
    unknown = sorted(number for number in found.classes if number not in numbers)
    if unknown:
        is_coco = results.first_class is None
        where = (
            "`category_id`"
            if is_coco
            else f"{CLASSES} beside the file, one per line, that of class 0 first"
        )
        name = "category_id" if is_coco else "class"
        problem = f"{name} {unknown[0]} is not a class of the ID dataset ({json.dumps(numbers)})"
        raise DataError(f"{problem}; write the names into {where}", file=file)
    return {"classes": list(numbers.values()), "categories": numbers}, assumed


def _listed_beside(file: Path) -> dict[int, str]:
    """Names of classes by number in the list beside a file or its folder; none where there is no list."""
    for folder in (file.parent, file.parent.parent):
        if is_file(folder / CLASSES):
            lines = [line.strip() for line in read_text(folder / CLASSES).splitlines()]
            return dict(enumerate(filter(None, lines)))
    return {}


@dataclass(frozen=True)
class Numbering:
    """Names of classes by number, and in words where the numbers are from."""

    names: dict[int, str]
    words: str


def _assumed_numbers(
    found: _Found, results: Results, dataset: Dataset
) -> tuple[dict[int, str], str]:
    """Names of classes by number, and what was assumed about the numbers.

    The usual numbering of the format is tested on images whose objects are labelled: where it does
    not fit and another one does, that one is taken.
    """
    usual, *others = _numberings(found, results, dataset)
    labelled = _LabelledDetections.of(found, results, dataset)
    fitting = labelled.count(usual.names)
    assumed = f"classes are numbers: assumed to be {usual.words}"
    if labelled.agree(fitting) and found.classes <= usual.names.keys():
        return usual.names, assumed
    for other in others:
        count = labelled.count(other.names)
        if found.classes <= other.names.keys() and labelled.has_enough and labelled.agree(count):
            reason = f"in {count} of {labelled.images} labelled images the best detection then has a labelled class"
            return (
                other.names,
                f"classes are numbers: assumed to be {other.words}, as {reason} (else in {fitting})",
            )
    if not labelled.has_enough or labelled.agree(fitting):
        return usual.names, assumed
    advice = f"write the names into {CLASSES} beside the files, one per line, that of class 0 first"
    if results.first_class is None:
        advice = "write the right names into `categories`"
    doubt = f"in only {fitting} of {labelled.images} labelled images does the best detection have a labelled class"
    return usual.names, f"{assumed}, but {doubt}: {advice}"


def _numberings(found: _Found, results: Results, dataset: Dataset) -> list[Numbering]:
    """The ways in which the ID dataset's classes may be numbered, the usual one of the format first."""
    in_order = [name for _, name in sorted(dataset.numbers.items())] or dataset.categories
    own = Numbering(dataset.numbers, "those of the ID dataset's files")
    from_0 = Numbering(dict(enumerate(in_order)), "the ID dataset's, in its order, from 0")
    from_1 = Numbering(dict(enumerate(in_order, start=1)), "the ID dataset's, in its order, from 1")
    if results.first_class is not None:
        usual = from_0
    elif dataset.entry["format"] == "yolo" and 0 not in found.classes:
        usual = from_1  # ultralytics numbers user-defined classes from 1
    elif dataset.numbers:
        usual = own
    else:
        usual = from_1
    numberings = [usual]
    for numbering in (own, from_0, from_1):
        if numbering.names and all(numbering.names != other.names for other in numberings):
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
    labelled: list[set[str]]

    @classmethod
    def of(cls, found: _Found, results: Results, dataset: Dataset) -> _LabelledDetections:
        """Those of some detections in images of the ID dataset."""
        reader = datasets.create(**dataset.entry)
        images: list[BenchmarkImage] = []
        labelled: list[set[str]] = []
        for subset in dataset.subsets:
            read = reader.read(subset)
            first = len(images)
            for image_id, file in zip(read.images.image_id, read.images.file, strict=True):
                images.append(BenchmarkImage(image_id, "", file, "", subset))
                labelled.append(set())
            for image, category in zip(read.objects.image, read.objects.category, strict=True):
                labelled[first + image].add(read.categories[category])
        images_by_name = NamedImages(images, range(len(images)))
        source = DetectionsSource("", Path(), named=results.named)
        pairs = []
        for name, (_, number) in found.images.items():
            fitting = images_by_name.fitting(source, name)
            if len(fitting) == 1 and labelled[fitting[0]] and isinstance(number, int):
                pairs.append((number, labelled[fitting[0]]))
        return cls([number for number, _ in pairs], [names for _, names in pairs])

    @property
    def images(self) -> int:
        """How many there are."""
        return len(self.numbers)

    @property
    def has_enough(self) -> bool:
        """Whether they are enough to doubt a numbering."""
        return self.images >= IMAGES

    def count(self, names: Mapping[int, str]) -> int:
        """Images whose best detection is of a class that is labelled there.

        Args:
            names: Names of classes by number.
        """
        return sum(
            names.get(number) in labelled
            for number, labelled in zip(self.numbers, self.labelled, strict=True)
        )

    def agree(self, count: int) -> bool:
        """Whether so many of the images are enough."""
        return count >= AGREEING * self.images
