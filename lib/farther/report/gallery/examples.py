"""Example images with their boxes: ground truth and detections."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
from PIL import UnidentifiedImageError

from farther.errors import DataError
from farther.images.orientation import upright
from farther.images.read import open_image
from farther.incremental.keyed import content_digest
from farther.report.gallery.outcomes import SplitOutcomes
from farther.tables.annotations import UNLABELLED, label_of
from farther.tables.files import inside


@dataclass(frozen=True)
class Mark:
    """A box in a picture, in pixels of the original image, and its label.

    `kind` is `truth`, `unknown` (a detection flagged as unknown) or `known` (any other detection).
    """

    kind: str
    left: float
    top: float
    width: float
    height: float
    text: str

    def plate_width(self, size: float) -> float:
        """Width of the plate below the text, for text of this height."""
        return round(len(self.text) * size * 0.68 + size * 0.6, 1)

    def plate_left(self, width: int, size: float) -> float:
        """Left edge of the plate, such that it stays in an image of this width."""
        return round(max(min(self.left, width - self.plate_width(size)), 0), 1)

    def plate_top(self, height: int, size: float) -> float:
        """Top edge of the plate, such that it stays in an image of this height.

        It is above a detection and below ground truth, so that the two do not hide each other.
        """
        plate = 1.35 * size
        if self.kind == "truth":
            top = self.top + self.height
        else:
            top = self.top - plate
        return round(max(min(top, height - plate), 0), 1)


@dataclass(frozen=True)
class Example:
    """A thumbnail with boxes.

    Args:
        image_id: The image's name in its dataset.
        width, height: Size of the original, in pixels.
        picture: The thumbnail, a WebP as base64 text.
        marks: The boxes in pixels of the original, ground truth first.
    """

    image_id: str
    width: int
    height: int
    picture: str
    marks: tuple[Mark, ...]

    @property
    def description(self) -> str:
        """The picture in words, for screen readers."""
        titles = {
            "truth": "ground truth",
            "known": "detected as known",
            "unknown": "flagged as unknown",
        }
        parts = []
        for kind, title in titles.items():
            texts = [mark.text for mark in self.marks if mark.kind == kind]
            if texts:
                parts.append(f"{title}: {', '.join(texts)}")
        text = "; ".join(parts) or "no object, no detection"
        return f"Image {self.image_id}. {text}."


@dataclass
class ReadImages:
    """The image files that a page has pictures of, or would have if they were there.

    Args:
        roots: Dataset → folder of its image files.
        digests: `<dataset>/<file>` → digest of the file's content, "absent" where there is none.
    """

    roots: Mapping[str, Path]
    digests: dict[str, str] = field(default_factory=dict)

    def note(self, dataset: str, file: str) -> None:
        """Notes the content of a file, before it is read."""
        self.digests[f"{dataset}/{file}"] = self._digest(dataset, file)

    def are_unchanged(self, digests: Mapping[str, str]) -> bool:
        """Whether the files that another `ReadImages` noted are the same today."""
        for name, digest in digests.items():
            dataset, _, file = name.partition("/")
            if dataset not in self.roots or self._digest(dataset, file) != digest:
                return False
        return True

    def _digest(self, dataset: str, file: str) -> str:
        path = inside(self.roots[dataset], file)
        if not path.is_file():
            return "absent"
        return content_digest(path)


def one_of_each(
    outcomes: SplitOutcomes, method: str, images: ReadImages, side: int
) -> dict[str, Example]:
    """One image per outcome of unknown objects: "found", "misclassified" and "missed".

    Each is the first of the split's table that is on this machine; none is hand-picked. An outcome
    that no such image shows is left out.

    Args:
        outcomes, method, images, side: See `choose_examples`.
    """
    marked = _MarkedImages.of(outcomes, method)
    rows = _alternate_outcomes(outcomes.images, marked.objects)
    example_by_outcome: dict[str, Example] = {}
    for outcome in rows["outcome"].cast(pl.String).unique(maintain_order=True):
        for image in rows.filter(pl.col("outcome") == outcome).iter_rows(named=True):
            example = marked.example(image, images, side)
            if example is not None:
                example_by_outcome[outcome] = example
                break
    return example_by_outcome


@dataclass(frozen=True)
class _MarkedImages:
    """Boxes in the images of a split, with their outcomes under a method.

    Args:
        objects, detections: See `SplitOutcomes`.
        classes: Names of the labels of detections.
    """

    objects: pl.DataFrame
    detections: pl.DataFrame
    classes: tuple[str, ...]

    @classmethod
    def of(cls, outcomes: SplitOutcomes, method: str) -> _MarkedImages:
        """Reads the outcomes of a split."""
        return cls(outcomes.objects_of(method), outcomes.detections_of(method), outcomes.classes)

    def example(self, image: Mapping[str, Any], images: ReadImages, side: int) -> Example | None:
        """An image with its boxes; None where it is not on this machine."""
        picture = thumbnail(image, images, side)
        if picture is None:
            return None
        is_of_image = pl.col("image_id") == image["image_id"]
        marks = (
            *truth(self.objects.filter(is_of_image)),
            *_detections(self.detections.filter(is_of_image), self.classes),
        )
        return Example(image["image_id"], image["width"], image["height"], picture, marks)


def choose_examples(
    outcomes: SplitOutcomes, method: str, images: ReadImages, count: int, side: int
) -> list[Example]:
    """Images of a split, in turn one with a found, a misclassified and a missed object.

    For each outcome the images come in the order of the split's table; none is hand-picked. Images
    that are not on this machine are skipped.

    Args:
        outcomes: The split.
        method: The method whose outcomes they are.
        images: Reads the images, and notes which.
        count: Largest number of examples.
        side: Longest side of a picture, in pixels.
    """
    chosen: list[Example] = []
    marked = _MarkedImages.of(outcomes, method)
    images_by_turn = _alternate_outcomes(outcomes.images, marked.objects)
    for image in images_by_turn.iter_rows(named=True):
        if len(chosen) == count:
            break
        example = marked.example(image, images, side)
        if example is not None:
            chosen.append(example)
    return chosen


def _alternate_outcomes(images: pl.DataFrame, objects: pl.DataFrame) -> pl.DataFrame:
    """Images with an unknown object, alternating between outcomes; each image once."""
    order = pl.Enum(["found", "misclassified", "missed"])
    return (
        images.with_row_index("row")
        .join(objects.select("image_id", "outcome").unique(), on="image_id")
        .with_columns(outcome=pl.col("outcome").cast(order, strict=False))
        .drop_nulls("outcome")
        .with_columns(turn=pl.col("row").rank("ordinal").over("outcome"))
        .sort("turn", "outcome")
        .unique("image_id", keep="first", maintain_order=True)
    )


def thumbnail(row: Mapping[str, Any], images: ReadImages, side: int) -> str | None:
    """An image as a small WebP, in base64.

    Args:
        row: The image's row of its table: dataset, file, width and height.
        images: Notes the file.
        side: Longest side of the WebP, in pixels.

    Returns:
        The WebP; None where this machine has no such file, or another image under its name.

    Raises:
        DataError: the file is not a readable image.
    """
    root = images.roots.get(row["dataset"])
    if root is None:
        return None
    images.note(row["dataset"], row["file"])
    try:
        with open_image(inside(root, row["file"])) as image:
            upright_image = upright(image)
            if upright_image.size != (row["width"], row["height"]):
                return None
            small = upright_image.convert("RGB")
            small.thumbnail((side, side))
    except (FileNotFoundError, UnidentifiedImageError):
        return None
    except (OSError, ValueError, SyntaxError) as error:
        raise DataError(f"the image cannot be read: {error}", file=row["file"]) from None
    webp = io.BytesIO()
    small.save(webp, "WEBP", quality=75, method=2)  # a fourth of the default's time, 2% more bytes
    return base64.b64encode(webp.getvalue()).decode("ascii")


def truth(objects: pl.DataFrame) -> Iterator[Mark]:
    """Marks of the annotated objects, without the boxes of images that were not annotated."""
    is_unlabelled = pl.col("is_crowd") & (pl.col("category") == UNLABELLED)
    for row in objects.filter(~is_unlabelled).iter_rows(named=True):
        yield mark_of("truth", row["box"], label_of(row["category"], is_crowd=row["is_crowd"]))


def _detections(detections: pl.DataFrame, classes: tuple[str, ...]) -> Iterator[Mark]:
    """Marks of detections, the least confident first."""
    for row in detections.sort("confidence", maintain_order=True).iter_rows(named=True):
        text = f"{classes[row['label']]} {100 * row['confidence']:.0f}%"
        if row["is_unknown"]:
            yield mark_of("unknown", row["box"], f"? {text}")
        else:
            yield mark_of("known", row["box"], text)


def mark_of(kind: str, box: list[float], text: str) -> Mark:
    """The mark of a box xmin, ymin, xmax, ymax."""
    left, top, right, bottom = (round(edge, 1) for edge in box)
    return Mark(kind, left, top, round(right - left, 1), round(bottom - top, 1), text)
