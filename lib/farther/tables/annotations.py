"""The tables `images`, `objects` and `scores`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from farther.errors import DataError
from farther.tables.columns import Column, ColumnTable


class Images(ColumnTable):
    """One row an image.

    Columns:
        image_id: Its name, unique in the table.
        dataset: Name of the dataset it comes from; the dataset's root says where its files lie.
        file: Path of the file within that root, with forward slashes.
        width, height: Size in pixels, as stored in the file (before EXIF rotation).
        digest: Name of the file's content (`farther.tables.files.digest`): a changed image is a changed table.
    """

    COLUMNS = (
        Column("image_id", "string"),
        Column("dataset", "string"),
        Column("file", "string"),
        Column("width", "int32"),
        Column("height", "int32"),
        Column("digest", "string"),
    )

    if TYPE_CHECKING:
        image_id: np.ndarray
        dataset: np.ndarray
        file: np.ndarray
        width: np.ndarray
        height: np.ndarray
        digest: np.ndarray

    def _check(self, source: str | Path | None) -> None:
        super()._check(source)
        unique, first = np.unique(self.image_id, return_index=True)
        if len(unique) != len(self):
            row = int(np.setdiff1d(np.arange(len(self)), first)[0])
            raise DataError(
                f"{self.image_id[row]!r} stands in an earlier row too", file=source, row=row, field="image_id"
            )


class Objects(ColumnTable):
    """One row an annotated object.

    Columns:
        image_id: The image that shows it.
        object_id: Its number, unique in the table.
        box: xmin, ymin, xmax, ymax in pixels of the image, edges (not pixel indices): a one-pixel object is 1 wide.
        category: Name of its class, as its dataset calls it.
        is_crowd: The box holds several objects (COCO's iscrowd, OpenImages' IsGroupOf): none is found or missed alone.
        is_difficult: The annotators marked it as hard to recognise (Pascal VOC).
    """

    COLUMNS = (
        Column("image_id", "string"),
        Column("object_id", "int64"),
        Column("box", "box"),
        Column("category", "string"),
        Column("is_crowd", "bool", optional=True, default=False),
        Column("is_difficult", "bool", optional=True, default=False),
    )

    if TYPE_CHECKING:
        image_id: np.ndarray
        object_id: np.ndarray
        box: np.ndarray
        category: np.ndarray
        is_crowd: np.ndarray
        is_difficult: np.ndarray

    def _check(self, source: str | Path | None) -> None:
        super()._check(source)
        unique, first = np.unique(self.object_id, return_index=True)
        if len(unique) != len(self):
            row = int(np.setdiff1d(np.arange(len(self)), first)[0])
            raise DataError(
                f"{self.object_id[row]} stands in an earlier row too", file=source, row=row, field="object_id"
            )


class Scores(ColumnTable):
    """One row a region: how much in-distribution a method takes it for.

    Columns:
        image_id, region_id: The region.
        score: Higher means more in-distribution.
    """

    COLUMNS = (
        Column("image_id", "string"),
        Column("region_id", "int64"),
        Column("score", "float64"),
    )

    if TYPE_CHECKING:
        image_id: np.ndarray
        region_id: np.ndarray
        score: np.ndarray


class TrueClasses(ColumnTable):
    """One row a detection in images whose objects are annotated: what it really shows.

    Columns:
        image_id, region_id: The detection.
        category: The class of the object that it lies over; empty where it lies over none.
    """

    COLUMNS = (
        Column("image_id", "string"),
        Column("region_id", "int64"),
        Column("category", "string"),
    )

    if TYPE_CHECKING:
        image_id: np.ndarray
        region_id: np.ndarray
        category: np.ndarray
