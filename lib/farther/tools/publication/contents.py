"""What is published of a split: its images as they lie in their files, and its objects image by image."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np

from farther.curation.sources import Categories, Source
from farther.datasets.credits import Credit
from farther.errors import DataError
from farther.tables import Images, Objects
from farther.tables.files import digest, inside

#: How far from the ID dataset a split is; "ID" for a split of the ID dataset itself.
Distance = Literal["ID", "near", "far", "farther"]


@dataclass(frozen=True)
class PublishedSplit:
    """One split, and where the files of its images are.

    Args:
        name: The split.
        distance: How far from ID it is.
        dataset, subset: Where its images come from.
        folder: The split's tables, as `curate` wrote them; messages name its files.
        source: Its images and objects.
        categories: The categories of its dataset.
        roots: Folder of the image files of each dataset.
        credits: Licence and author of images by their ids, as far as their dataset's files say them.

    Raises:
        DataError: an object has a category that its dataset does not have; names the row.
    """

    name: str
    distance: Distance
    dataset: str
    subset: str
    folder: Path
    source: Source
    categories: Categories
    roots: Mapping[str, Path] = field(repr=False)
    credits: Mapping[str, Credit] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        lost = np.flatnonzero(self.category_number < 0)
        if len(lost):
            row = int(lost[0])
            problem = f"{self.objects.category[row]!r} is no category of dataset {self.dataset!r}; run `curate` again"
            raise DataError(problem, file=self.folder / "objects.parquet", row=row, field="category")

    @cached_property
    def category_number(self) -> np.ndarray:
        """Place of each object's category in `categories.names`, -1 if it has none: int64 (number of objects,)."""
        known = {name: number for number, name in enumerate(self.categories.names)}
        return np.array([known.get(name, -1) for name in self.objects.category], dtype=np.int64)

    @property
    def images(self) -> Images:
        """The images."""
        return self.source.images

    @property
    def objects(self) -> Objects:
        """Their objects."""
        return self.source.objects

    @cached_property
    def boxes(self) -> np.ndarray:
        """The boxes as x, y, width, height: float64 of shape (number of objects, 4)."""
        return xywh(self.objects.box)

    def credit(self, row: int) -> Credit:
        """Licence and author of an image, empty where they are not known."""
        return self.credits.get(self.images.image_id[row], Credit())

    def supercategory(self, category: str) -> str:
        """What lies next above a category in its dataset's hierarchy, "" where that is not known."""
        return next(iter(self.categories.above(category)), "")

    def by_image(self) -> Iterator[tuple[int, np.ndarray]]:
        """Row of each image, in order, and the rows of its objects, in the order of the objects table."""
        order = np.argsort(self.source.image_row, kind="stable")
        ends = np.searchsorted(self.source.image_row[order], np.arange(len(self.images) + 1))
        for image in range(len(self.images)):
            yield image, order[ends[image] : ends[image + 1]]

    def image_path(self, row: int) -> Path:
        """Path of an image's file.

        Raises:
            DataError: its dataset has no folder in the parameters, or the name leaves that folder.
        """
        root = self.roots.get(self.images.dataset[row])
        if root is None:
            raise self._error(row, "dataset", f"no dataset {self.images.dataset[row]!r} in section 'datasets'")
        try:
            return inside(root, self.images.file[row])
        except DataError as error:
            raise self._error(row, "file", error.problem) from None

    def image_size(self, row: int) -> int:
        """Bytes of an image's file.

        Raises:
            DataError: there is none.
        """
        try:
            return self.image_path(row).stat().st_size
        except OSError as error:
            raise self._unreadable(row, error) from None

    def image_bytes(self, row: int) -> bytes:
        """An image's file as it is.

        Raises:
            DataError: it cannot be read, or is not the file that was ingested.
        """
        try:
            content = self.image_path(row).read_bytes()
        except OSError as error:
            raise self._unreadable(row, error) from None
        if file_digest(content) != self.images.digest[row]:
            problem = f"the file {self.image_path(row)} has changed since it was ingested; run `ingest` and `curate`"
            raise self._error(row, "digest", problem)
        return content

    def _unreadable(self, row: int, error: OSError) -> DataError:
        problem = f"the image {self.image_path(row)} cannot be read ({error.strerror}); place it there, or run `ingest`"
        return self._error(row, "file", problem)

    def _error(self, row: int, column: str, problem: str) -> DataError:
        return DataError(problem, file=self.folder / "images.parquet", row=row, field=column)


def file_digest(content: bytes) -> str:
    """What `farther.tables.files.digest` calls a file that holds `content`: it names files by a digest of them."""
    return digest(hashlib.blake2b(content, digest_size=16).digest())


def xywh(edges: np.ndarray) -> np.ndarray:
    """Boxes as x, y, width and height in short decimals that give the same edges back.

    `x + width`, computed in double precision and rounded to float32, is the right edge exactly, and `y + height` the
    lower one. 123.4 is written as 123.4, not as the float32 next to it with all its digits.

    Args:
        edges: xmin, ymin, xmax, ymax: float32 of shape (N, 4).

    Returns:
        float64 of shape (N, 4).

    Example:
        >>> xywh(np.array([[0.1, 2, 123.4, 5.5]], np.float32)).tolist()
        [[0.1, 2.0, 123.3, 3.5]]
    """
    exact = edges.astype(np.float64).reshape(-1, 4)
    short = edges.astype("U32").astype(np.float64).reshape(-1, 4)
    size = np.round(short[:, 2:] - short[:, :2], 6)
    is_same = ((short[:, :2] + size).astype(np.float32) == exact[:, 2:]).all(axis=1, keepdims=True)
    low = np.where(is_same, short[:, :2], exact[:, :2])
    return np.concatenate([low, np.where(is_same, size, exact[:, 2:] - exact[:, :2])], axis=1)
