"""Training images with their boxes, from the tables `images` and `objects`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from torch.utils.data import Dataset

from farther.errors import DataError
from farther.images.read import load
from farther.tables import Images, Objects
from farther.tables.files import digest, inside


@dataclass(frozen=True)
class Sample:
    """A training image with its objects.

    Args:
        pixels: ndarray of shape (H, W, 3), uint8, red green blue.
        boxes: ndarray of shape (N, 4), float32: xmin, ymin, xmax, ymax in pixels.
        labels: ndarray of shape (N,), int64: indices into the classes, from 0.
    """

    pixels: np.ndarray
    boxes: np.ndarray
    labels: np.ndarray


class Samples(Dataset):
    """The images of a subset, read lazily; crowds, groups and objects of other classes are left out.

    Args:
        images, objects: Their tables.
        root: Folder of the image files.
        classes: The classes to learn, in the order of the labels.

    Raises:
        DataError: there is no image, or no object of these classes.
    """

    def __init__(self, images: Images, objects: Objects, root: str | Path, classes: Sequence[str]):
        self.images = images
        self.objects = objects
        self.root = Path(root)
        self.classes = tuple(classes)
        number = {name: k for k, name in enumerate(self.classes)}
        wanted = np.array([c in number for c in objects.category], dtype=bool)
        #: Number of objects left out, by category.
        self.left_out = dict(sorted(Counter(objects.category[~wanted]).items()))
        learned = objects[wanted & ~objects.is_crowd]
        if len(images) == 0 or len(learned) == 0:
            found = f"{len(images)} images with {len(learned)} objects of {list(self.classes)}"
            raise DataError(f"nothing to learn: {found}")
        row = {name: r for r, name in enumerate(images.image_id)}
        rows = np.array([row.get(name, -1) for name in learned.image_id])
        order = np.argsort(rows, kind="stable")
        bounds = np.searchsorted(rows[order], np.arange(len(images) + 1))
        labels = np.array([number[c] for c in learned.category], dtype=np.int64)
        self.learned = len(learned)
        self.boxes = [learned.box[order[a:b]] for a, b in pairwise(bounds)]
        self.labels = [labels[order[a:b]] for a, b in pairwise(bounds)]
        self._cached: list[np.ndarray] | None = None

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, row: int) -> Sample:
        return Sample(self.pixels(row), self.boxes[row], self.labels[row])

    def pixels(self, row: int) -> np.ndarray:
        """Image of a row, uint8 (H, W, 3); DataError if its file is absent, damaged or not the ingested one."""
        if self._cached is not None:
            return self._cached[row]
        path = inside(self.root, self.images.file[row])
        pixels = load(path)
        if digest(path) != self.images.digest[row]:
            # With the boxes of another image training would fail silently.
            raise DataError("the file changed since it was ingested; ingest the dataset again", file=path, row=row)
        return pixels

    def cache(self) -> None:
        """Loads all images into memory: width × height × 3 bytes each."""
        self._cached = [self.pixels(row) for row in range(len(self))]

    def digest(self) -> str:
        """Digest of the images' content, the boxes and the labels."""
        parts = [*self.classes, *self.images.digest]
        parts += [a.tobytes() for a in (*self.boxes, *self.labels)]
        return digest(*parts)
