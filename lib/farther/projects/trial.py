"""A detector tried on a folder of images, without a project: detections, scores, and one page."""

from __future__ import annotations

import base64
import io
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import polars as pl
from PIL import Image
from tqdm import tqdm

from farther import datasets, detectors, methods
from farther.datasets.base import AnnotatedImages, AnnotatedObjects, Annotations
from farther.datasets.ingest import to_tables
from farther.detectors import Detector
from farther.errors import DataError, ParameterError
from farther.images.orientation import upright
from farther.images.read import open_image
from farther.metrics.open_set.outcomes import MISCLASSIFIED, MISSED, MatchingRules, OpenSetSplit
from farther.projects.class_matching import Lookup, match_classes
from farther.projects.recognise import Dataset, recognise
from farther.projects.recognise_detector import RecognisedDetector, recognise_detector
from farther.report.site import Site
from farther.tables import Images, Objects, Regions
from farther.tables.files import inside
from farther.tables.folders import resolved
from farther.tables.writing import refuse_other_files, write_aside

Columns = TypeVar("Columns", AnnotatedImages, AnnotatedObjects)

#: Scores that need no training regions: methods whose fit takes nothing but the classes.
SCORES = ("confidence", "msp", "mls", "energy", "entropy", "gen")

#: The page, which also marks its folder.
PAGE = "trial.html"

#: Longest side of a picture on the page, in pixels.
SIDE = 480

#: Classes that are named in a sentence, the most frequent first.
NAMED = 4


@dataclass(frozen=True)
class Trial:
    """Detections in some images, and their scores.

    Args:
        detector: The detector, as it was recognised.
        path: Its file, as the user wrote it.
        folder: The folder of the images, as the user wrote it.
        root: The folder that the images' files are relative to.
        confidence: The smallest confidence of a detection.
        images: The images that were tried.
        total: Number of images in the folder.
        regions: N detections at or above `confidence`.
        scores: Title of a method → its scores, ndarray of shape (N,); higher is more
            in-distribution.
        objects: Annotated objects, by the detector's names of classes; None where nothing is
            annotated.
        notes: What a user should know of the annotations.
    """

    detector: RecognisedDetector
    path: Path
    folder: Path
    root: Path
    confidence: float
    images: Images
    total: int
    regions: Regions
    scores: Mapping[str, np.ndarray]
    objects: Objects | None
    notes: Sequence[str] = ()

    def sentences(self) -> list[str]:
        """What the detector does, in sentences."""
        images = f"{len(self.images):,} images"
        if self.total > len(self.images):
            images = f"{len(self.images):,} of {self.total:,} images, evenly spread"
        sentences = [f"{len(self.regions):,} detections in {images}."]
        if self.objects is None:
            sentences.append(
                "Nothing is annotated, so nothing is known of what is missed or misclassified."
            )
            return sentences
        return [*sentences, *self._outcomes(self.objects)]

    def _outcomes(self, objects: Objects) -> list[str]:
        """What becomes of the annotated objects that the detector does not know."""
        classes = self.regions.header.known_classes
        split = OpenSetSplit.of(objects, self.regions, MatchingRules(known_classes=classes))
        outcome = split.match(np.zeros(len(self.regions), dtype=bool))
        is_unknown = (outcome.of_object == MISCLASSIFIED) | (outcome.of_object == MISSED)
        total = int(is_unknown.sum())
        if not total:
            return ["All annotated objects are of classes that the detector knows."]

        categories = Counter(objects.category[is_unknown].tolist())
        missed = int((outcome.of_object == MISSED).sum())
        region = outcome.deciding_region()[outcome.of_object == MISCLASSIFIED]
        taken_for = Counter(classes[label] for label in self.regions.label[region])
        misclassified = total - missed
        sentences = [
            f"Of {total:,} objects that it does not know ({_listed(categories)}), it detects "
            f"{misclassified / total:.0%} as something it knows and misses {missed / total:.0%}."
        ]
        if taken_for:
            counts = ", ".join(f"{name} {count}" for name, count in taken_for.most_common(NAMED))
            sentences.append(f"It takes them for: {counts}.")
        return sentences

    def command(self) -> str:
        """The command that makes a project of it."""
        folder = shlex.quote(str(self.folder))
        detector = shlex.quote(str(self.path))
        return f"farther init project --id ID_DATASET --ood {folder} --detector {detector}"


def _listed(counts: Counter[str]) -> str:
    names = [name for name, _ in counts.most_common(NAMED)]
    if len(counts) > NAMED:
        names.append(f"and {len(counts) - NAMED} more")
    return ", ".join(names)


def try_detector(
    path: Path,
    folder: Path,
    labels: Path | None = None,
    *,
    limit: int = 100,
    confidence: float = 0.25,
    lookup: Lookup | None = None,
) -> Trial:
    """Detects objects in the images of a folder.

    Args:
        path: A checkpoint; see `recognise_detector`.
        folder: A folder of images, with annotations or without; see `recognise`.
        labels: A folder with annotations of the images; by default the folder itself.
        limit: Largest number of images, evenly spread over the folder.
        confidence: The smallest confidence of a detection.
        lookup: Sources of synonyms of names of classes.

    Raises:
        DataError: the detector or the folder is not one that is known, holds no image, or an image
            cannot be read.
        ParameterError: a limit is out of range, or the file holds detections.
    """
    if limit < 1:
        raise ParameterError(f"--images: expected 1 or more, found {limit}")
    if not 0 <= confidence <= 1:
        raise ParameterError(f"--confidence: expected 0 to 1, found {confidence:g}")
    dataset = recognise(resolved(labels or folder))
    detector = recognise_detector(resolved(path), dataset, lookup)
    adapter = detectors.of_entry(detector.entry)
    if not isinstance(adapter, Detector):
        raise ParameterError(
            f"{path}: these are detections, which need no trial; `farther init` takes them"
        )

    annotations, total = _sampled(dataset, limit)
    reader = datasets.create(**dataset.entry)
    images, objects, _ = to_tables(annotations, reader, "images")
    root = annotations.image_root or annotations.root
    regions = _detect(adapter, images, root)
    regions = regions.above(confidence)
    return Trial(
        detector=detector,
        path=path,
        folder=folder,
        root=root,
        confidence=confidence,
        images=images,
        total=total,
        regions=regions,
        scores=_scores(regions),
        objects=_by_known_names(objects, dataset, regions, lookup),
        notes=dataset.notes,
    )


def _sampled(dataset: Dataset, limit: int) -> tuple[Annotations, int]:
    """Annotations of images that are evenly spread over a dataset, and its number of images.

    Of several subsets, the first has them.

    Raises:
        DataError: the dataset has no images.
    """
    reader = datasets.create(**dataset.entry)
    annotations = reader.read(dataset.subsets[0])
    total = len(annotations.images)
    if not total:
        raise DataError("the folder has no images", file=dataset.entry["root"])
    rows = np.unique(np.linspace(0, total - 1, min(limit, total)).round().astype(int))
    return _with_images(annotations, rows), total


def _with_images(annotations: Annotations, rows: np.ndarray) -> Annotations:
    """The annotations of some images.

    Args:
        annotations: Of all images.
        rows: Rows of the images, sorted.
    """
    new_row = np.full(len(annotations.images), -1)
    new_row[rows] = np.arange(len(rows))
    objects = _rows_of(annotations.objects, new_row[annotations.objects.image] >= 0)
    unlabelled = new_row[np.asarray(annotations.unlabelled, dtype=int)]
    return replace(
        annotations,
        images=_rows_of(annotations.images, rows),
        objects=replace(objects, image=new_row[objects.image]),
        unlabelled=unlabelled[unlabelled >= 0],
    )


def _rows_of(table: Columns, rows: np.ndarray) -> Columns:
    """Some rows of a table whose columns are arrays."""
    columns = {}
    for field in fields(table):
        value = getattr(table, field.name)
        if isinstance(value, np.ndarray):
            columns[field.name] = value[rows]
    return replace(table, **columns)


def _detect(adapter: Detector, images: Images, root: Path) -> Regions:
    """The detections in all images, with a bar of progress."""
    batches = []
    rows = list(images.frame.select("image_id", "file").iter_rows())
    for start in tqdm(range(0, len(rows), BATCH), "detecting", unit="batch", disable=None):
        batch = rows[start : start + BATCH]
        files = [inside(root, file) for _, file in batch]
        batches.append(adapter.detect(files, [name for name, _ in batch]))
    return Regions.concatenate(batches)


#: Images that go through the network together.
BATCH = 8


def _scores(regions: Regions) -> dict[str, np.ndarray]:
    """Title of each method of `SCORES` that the detector has the columns for → its scores."""
    scores = {}
    if not len(regions):
        return {methods.get(SCORES[0]).title: np.zeros(0)}
    for name in SCORES:
        method = methods.create(name)
        if type(method).needs <= set(regions.frame.columns) | {"score", "label"}:
            scores[type(method).title] = method.fit(regions).score(regions)
    return scores


def _by_known_names(
    objects: Objects, dataset: Dataset, regions: Regions, lookup: Lookup | None
) -> Objects | None:
    """The objects with the detector's names of the classes that it knows.

    None where nothing is annotated.
    """
    if not len(objects) or objects.is_unlabelled.all():
        return None
    known = regions.header.known_classes
    names = {}
    for match in match_classes(dataset.categories, known, lookup):
        if match.relation == "same":
            names[match.category] = match.id_class
    categories = [names.get(name, name) for name in objects.category]
    frame = objects.frame.with_columns(category=pl.Series(categories, dtype=pl.String))
    return objects.with_frame(frame)


def write_page(trial: Trial, out: Path) -> Path:
    """Writes one page with all images, which opens from disk.

    Args:
        trial: What was tried.
        out: Its folder.

    Returns:
        The page.

    Raises:
        DataError: the folder has files of something else.
    """
    refuse_other_files(out, PAGE, "farther try")
    with write_aside(out) as aside, Site(aside) as site:
        site.write(PAGE, "trial.html", **content(trial))
    return out / PAGE


def content(trial: Trial) -> dict[str, Any]:
    """Variables of the template `trial.html`."""
    names = trial.regions.header.classes
    row_by_image = {name: row for row, name in enumerate(trial.images.image_id.tolist())}
    detections: list[list[Any]] = [[] for _ in row_by_image]
    scores = {title: np.round(values, 6) for title, values in trial.scores.items()}
    for row, image_id in enumerate(trial.regions.image_id):
        box = [round(float(edge), 1) for edge in trial.regions.box[row]]
        name = names[trial.regions.label[row]]
        values = [float(of_method[row]) for of_method in scores.values()]
        confidence = round(float(trial.regions.score[row]), 4)
        detections[row_by_image[image_id]].append([box, name, confidence, values])

    pictures = []
    for image in trial.images.frame.iter_rows(named=True):
        picture = {
            "name": image["image_id"],
            "width": image["width"],
            "height": image["height"],
            "jpeg": _jpeg(inside(trial.root, image["file"])),
            "objects": _truth(trial.objects, image["image_id"]),
            "detections": detections[row_by_image[image["image_id"]]],
        }
        pictures.append(picture)
    return {
        "detector": trial.path.stem,
        "sentences": trial.sentences(),
        "notes": trial.notes,
        "confidence": trial.confidence,
        "command": trial.command(),
        "data": {"scores": list(trial.scores), "images": pictures},
    }


def _truth(objects: Objects | None, image_id: str) -> list[list[Any]]:
    """Box and category of the annotated objects of an image."""
    if objects is None:
        return []
    marks = []
    of_image = objects[objects.image_id == image_id]
    for box, category in zip(of_image.box, of_image.category, strict=True):
        marks.append([[round(float(edge), 1) for edge in box], str(category)])
    return marks


def _jpeg(file: Path) -> str:
    """An image as a small JPEG, in base64."""
    with open_image(file) as image:
        small = upright(image).convert("RGB")
    small.thumbnail((SIDE, SIDE), Image.Resampling.BILINEAR)
    data = io.BytesIO()
    small.save(data, "JPEG", quality=80)
    return base64.b64encode(data.getvalue()).decode("ascii")
