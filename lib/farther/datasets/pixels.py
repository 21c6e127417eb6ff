"""Labelled images whose pixels a dataset stores in arrays: `ingest` writes each to a PNG file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image

from farther.datasets.base import WHOLE_IMAGE, Annotations, Collector
from farther.datasets.records import Location
from farther.errors import DataError


@dataclass(frozen=True)
class Block:
    """The images of one file.

    Args:
        file: The file that labels them.
        pixels: uint8 of shape (N, height, width) or (N, height, width, 3).
        labels: Index of the class of each image, integers of shape (N,).
        field: Name of the label in messages.
    """

    file: Path
    pixels: np.ndarray
    labels: np.ndarray
    field: str = "label"


def labelled(
    root: Path, subset: str, blocks: Sequence[Block], categories: Sequence[str]
) -> Annotations:
    """The annotations of a subset; an image's id is its number in the subset, with six digits.

    Raises:
        DataError: a label is not an index of `categories`; names file, row and field.
    """
    collector = Collector(root)
    for block in blocks:
        height, width = block.pixels.shape[1:3]
        for row, label in enumerate(block.labels.tolist()):
            location = Location(block.file, f"[{row}]", block.field)
            if not 0 <= label < len(categories):
                raise location.error(f"expected 0 to {len(categories) - 1}, found {label}")
            image_id = f"{len(collector.rows):06d}"
            image = collector.add_image(
                image_id, f"{subset}/{image_id}.png", location, width=width, height=height
            )
            collector.annotated_by(block.file)
            collector.add_object(image, WHOLE_IMAGE, label, row)
    if not collector.rows:
        raise DataError("no image in the file", file=blocks[0].file)
    return collector.annotations(
        unit="image",
        categories=list(categories),
        row="[{row}]",
        box_field="the whole image",
        embedded=partial(_png_files, blocks),
    )


def _png_files(blocks: Sequence[Block]) -> Iterator[tuple[int, bytes]]:
    """Row and PNG file of each image."""
    row = 0
    for block in blocks:
        for pixels in block.pixels:
            yield row, _png(pixels)
            row += 1


def _png(pixels: np.ndarray) -> bytes:
    """A PNG file."""
    file = BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(file, "PNG")
    return file.getvalue()
