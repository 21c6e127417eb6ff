"""Training images with boxes, from the tables `images` and `objects`, and their augmentation."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from PIL import Image
from torch.utils.data import Dataset

from farther.errors import DataError
from farther.images.read import load
from farther.tables import Images, Objects
from farther.tables.files import digest, inside
from farther_training.recipe import Augmentation


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
    """The images of a subset, read lazily.

    Crowds, groups and objects of other classes are left out.

    Args:
        images, objects: Their tables.
        root: Folder of the image files.
        classes: The classes to learn, in the order of the labels.

    Raises:
        DataError: there are no images, or no objects of these classes.
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
        """Image of a row, uint8 (H, W, 3).

        DataError if its file is absent, damaged or not the ingested one.
        """
        if self._cached is not None:
            return self._cached[row]
        path = inside(self.root, self.images.file[row])
        pixels = load(path)
        if digest(path) != self.images.digest[row]:
            # With the boxes of another image training would fail silently.
            raise DataError(
                "the file changed since it was ingested; ingest the dataset again",
                file=path,
                row=row,
            )
        return pixels

    def cache(self) -> None:
        """Loads all images into memory: width × height × 3 bytes each."""
        self._cached = [self.pixels(row) for row in range(len(self))]

    def digest(self) -> str:
        """Digest of the images' content, the boxes and the labels."""
        parts = [*self.classes, *self.images.digest]
        parts += [a.tobytes() for a in (*self.boxes, *self.labels)]
        return digest(*parts)


#: Luma coefficients of red, green and blue (ITU-R BT.601).
LUMA = np.array([0.299, 0.587, 0.114])
#: Colour outside the moved image.
FILL = (114, 114, 114)


def augment(sample: Sample, params: Augmentation, random: np.random.Generator) -> Sample:
    """An augmented sample of the same size, determined by `random`."""
    height, width = sample.pixels.shape[:2]
    placed = place(params, width, height, random)
    image = Image.fromarray(sample.pixels)
    if not np.array_equal(placed, IDENTITY):
        (sx, tx), (sy, ty) = placed
        back = (1 / sx, 0, -tx / sx, 0, 1 / sy, -ty / sy)
        affine = Image.Transform.AFFINE
        bilinear = Image.Resampling.BILINEAR
        image = image.transform((width, height), affine, back, bilinear, fillcolor=FILL)
    recoloured = colour(params, random)
    if not np.array_equal(recoloured, NO_CHANGE):
        image = image.convert("RGB", tuple(recoloured.ravel()))
    boxes, kept = move_boxes(sample.boxes, placed, width, height, params.min_visible)
    return Sample(np.array(image), boxes[kept], sample.labels[kept])


IDENTITY = np.array([[1.0, 0.0], [1.0, 0.0]])
NO_CHANGE = np.hstack([np.eye(3), np.zeros((3, 1))])


def place(params: Augmentation, width: int, height: int, random: np.random.Generator) -> np.ndarray:
    """Random scale and shift of the content.

    Returns:
        ndarray of shape (2, 2): factor and shift in pixels, for x and for y.
    """
    scale = math.exp(random.uniform(*np.log(params.scale)))
    shift = random.uniform(-params.translate, params.translate, 2) * (width, height)
    centre = np.array([width, height]) / 2
    offset = centre * (1 - scale) + shift
    placed = np.array([[scale, offset[0]], [scale, offset[1]]])
    if random.random() < params.flip:
        placed[0] = -placed[0, 0], width - placed[0, 1]
    return placed


def move_boxes(
    boxes: np.ndarray, placed: np.ndarray, width: int, height: int, min_visible: float
) -> tuple[np.ndarray, np.ndarray]:
    """Boxes after `placed`, clipped to the frame, and a mask of those that are visible enough.

    Returns:
        ndarray of shape (N, 4), float32; and a mask of shape (N,).
    """
    corners = boxes.reshape(-1, 2, 2) * placed[:, 0] + placed[:, 1]
    whole = np.concatenate([corners.min(axis=1), corners.max(axis=1)], axis=1)
    limit = (width, height, width, height)
    clipped = np.clip(whole, 0, limit)
    kept = (clipped[:, 2:] - clipped[:, :2]).min(axis=1, initial=np.inf) >= 1
    kept &= _areas(clipped) >= min_visible * _areas(whole)
    return clipped.astype(np.float32), kept


def _areas(boxes: np.ndarray) -> np.ndarray:
    return (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])


def colour(params: Augmentation, random: np.random.Generator) -> np.ndarray:
    """Random affine map of colours for hue, saturation, contrast and brightness.

    Returns:
        ndarray of shape (3, 4), for colours from 0 to 255.
    """
    turn, saturation, contrast, brightness = random.uniform(-1, 1, 4) * (
        params.hue * 2 * math.pi,
        params.saturation,
        params.contrast,
        params.brightness,
    )
    grey = np.tile(LUMA, (3, 1))
    matrix = (1 + saturation) * np.eye(3) - saturation * grey
    matrix = (1 + contrast) * (1 + brightness) * matrix @ _rotation(turn)
    offset = -contrast * (1 + brightness) * 127.5
    return np.hstack([matrix, np.full((3, 1), offset)])


def _rotation(angle: float) -> np.ndarray:
    """Rotation of the colour cube about its grey diagonal (Rodrigues)."""
    axis = 1 / math.sqrt(3)
    cross = axis * np.array([[0, -1, 1], [1, 0, -1], [-1, 1, 0]])
    return np.eye(3) + math.sin(angle) * cross + (1 - math.cos(angle)) * cross @ cross
