"""Example images: what is there, what the detector found, and what the method took it for."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError

from farther.errors import DataError
from farther.evaluation.files import RunFiles, RunSplit, aligned_scores
from farther.metrics import open_set
from farther.report.results import Run
from farther.tables import Images, Objects, Regions
from farther.tables.files import inside


@dataclass(frozen=True)
class Mark:
    """A box in a picture.

    Args:
        kind: `truth`, `unknown` (a detection flagged as unknown) or `known` (one kept as the class it was detected as).
        left, top, width, height: In pixels of the original image.
        text: What stands beside it.
    """

    kind: str
    left: float
    top: float
    width: float
    height: float
    text: str

    def plate_width(self, size: float) -> float:
        """Width of the plate that the text stands on, for text of this height."""
        return round(len(self.text) * size * 0.63 + size * 0.6, 1)

    def plate_left(self, width: int, size: float) -> float:
        """Where the plate starts, so that it stays in an image of this width."""
        return round(max(min(self.left, width - self.plate_width(size)), 0), 1)

    def plate_top(self, height: int, size: float) -> float:
        """Above the box for a detection, at its lower edge for ground truth, so that the two do not hide each other."""
        plate = 1.35 * size
        wanted = self.top + self.height if self.kind == "truth" else self.top - plate
        return round(max(min(wanted, height - plate), 0), 1)


@dataclass(frozen=True)
class Example:
    """A picture with its boxes.

    Args:
        image_id: The image.
        width, height: Of the original, in pixels; the boxes' coordinates.
        picture: The thumbnail, a JPEG as base64 text.
        marks: Boxes, ground truth first.
    """

    image_id: str
    width: int
    height: int
    picture: str
    marks: tuple[Mark, ...]

    @property
    def description(self) -> str:
        """What the picture shows, for those who cannot see it."""
        shown = {"truth": "ground truth", "known": "kept as known", "unknown": "flagged as unknown"}
        parts = [
            f"{title}: {', '.join(mark.text for mark in self.marks if mark.kind == kind)}"
            for kind, title in shown.items()
            if any(mark.kind == kind for mark in self.marks)
        ]
        return f"Image {self.image_id}. " + ("; ".join(parts) or "nothing labelled, nothing detected") + "."


def examples(
    run: Run, split: str, method: str, artifacts: Path, roots: Mapping[str, Path], count: int, side: int
) -> list[Example]:
    """Images of a split: in turn one with an object that was found, that was misclassified, and that was ignored.

    Within each kind the images come in the order of the split's table; none is chosen by eye. Images that are not on
    this machine are passed over.

    Args:
        run, split, method: Whose detections and decisions.
        artifacts: The artifacts folder.
        roots: Dataset → folder of its image files.
        count: How many.
        side: Longest side of a thumbnail in pixels.

    Raises:
        DataError: a table is damaged.
    """
    files = RunFiles(run.name, run.benchmark, artifacts)
    data = RunSplit(files, split)
    regions = data.regions(float(run.detector["threshold"]))
    scores = aligned_scores(regions, files.scores(method, split), len(data.folder))
    tau = float(run.evaluation["methods"][method]["tau"])
    settings, known = run.evaluation["settings"], data.folder.header.known_classes
    overlaps = open_set.Split(data.objects, regions, settings["iou"], settings["protocol"], known)
    outcome = overlaps.judge(scores < tau)
    made: list[Example] = []
    images = Images.read(files.images(split))
    for row in _in_turn(images, data.objects, outcome.fate):
        if len(made) == count:
            break
        picture = _thumbnail(images, row, roots, side)
        if picture is not None:
            image_id = images.image_id[row]
            mine = regions.image_id == image_id
            marks = (
                *_truth(data.objects[data.objects.image_id == image_id]),
                *_detections(regions[mine], scores[mine] < tau),
            )
            size = int(images.width[row]), int(images.height[row])
            made.append(Example(str(image_id), *size, picture, marks))
    return made


def _in_turn(images: Images, objects: Objects, fate: np.ndarray) -> list[int]:
    """Rows of images, alternating between the fates of their objects; each row once."""
    groups = []
    for wanted in (open_set.FOUND, open_set.MISCLASSIFIED, open_set.MISSED):
        shown = set(objects.image_id[fate == wanted])
        groups.append([row for row, name in enumerate(images.image_id) if name in shown])
    return [row for row in dict.fromkeys(chain.from_iterable(zip_longest(*groups))) if row is not None]


def _thumbnail(images: Images, row: int, roots: Mapping[str, Path], side: int) -> str | None:
    """A JPEG no larger than `side`, None where this machine has no such file, or another image under its name."""
    root = roots.get(images.dataset[row])
    if root is None:
        return None
    try:
        with Image.open(inside(root, images.file[row])) as image:
            if image.size != (images.width[row], images.height[row]):
                return None
            small = image.convert("RGB")
            small.thumbnail((side, side))
    except (FileNotFoundError, UnidentifiedImageError):
        return None
    except OSError as error:
        raise DataError(f"the image cannot be read: {error}", file=images.file[row], row=row) from None
    written = io.BytesIO()
    small.save(written, "JPEG", quality=80, optimize=True)
    return base64.b64encode(written.getvalue()).decode("ascii")


def _truth(objects: Objects) -> Iterator[Mark]:
    for box, category, crowd in zip(objects.box, objects.category, objects.is_crowd, strict=True):
        yield _mark("truth", box, f"{category} (group)" if crowd else str(category))


def _detections(regions: Regions, is_unknown: np.ndarray) -> Iterator[Mark]:
    for row in np.argsort(regions.score, kind="stable"):
        name = regions.classes[regions.label[row]]
        kind = "unknown" if is_unknown[row] else "known"
        text = f"{name} {100 * regions.score[row]:.0f}%"
        yield _mark(kind, regions.box[row], f"? {text}" if is_unknown[row] else text)


def _mark(kind: str, box: np.ndarray, text: str) -> Mark:
    left, top, right, bottom = (round(float(edge), 1) for edge in box)
    return Mark(kind, left, top, round(right - left, 1), round(bottom - top, 1), text)
