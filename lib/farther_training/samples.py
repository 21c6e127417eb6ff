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
        label_by_class = {name: label for label, name in enumerate(self.classes)}
        is_learned = np.array([name in label_by_class for name in objects.category], dtype=bool)
        #: Number of objects left out, by category.
        self.left_out = dict(sorted(Counter(objects.category[~is_learned]).items()))
        learned = objects[is_learned & ~objects.is_crowd]
        if len(images) == 0 or len(learned) == 0:
            raise DataError(
                f"nothing to learn: {len(images)} images with {len(learned)} objects of "
                f"{list(self.classes)}"
            )
        self.learned = len(learned)

        row_by_image = {name: row for row, name in enumerate(images.image_id)}
        rows = np.array([row_by_image.get(name, -1) for name in learned.image_id])
        labels = np.array([label_by_class[name] for name in learned.category], dtype=np.int64)
        order = np.argsort(rows, kind="stable")
        bounds = np.searchsorted(rows[order], np.arange(len(images) + 1))
        self.boxes: list[np.ndarray] = []
        self.labels: list[np.ndarray] = []
        for start, end in pairwise(bounds):
            rows_of_image = order[start:end]
            self.boxes.append(learned.box[rows_of_image])
            self.labels.append(labels[rows_of_image])
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
        boxes = [array.tobytes() for array in self.boxes]
        labels = [array.tobytes() for array in self.labels]
        return digest(*self.classes, *self.images.digest, *boxes, *labels)


#: Luma coefficients of red, green and blue (ITU-R BT.601).
LUMA = np.array([0.299, 0.587, 0.114])
#: Colour outside the moved image.
FILL = (114, 114, 114)


def augment(sample: Sample, params: Augmentation, random: np.random.Generator) -> Sample:
    """An augmented sample of the same size, determined by `random`."""
    height, width = sample.pixels.shape[:2]
    placement = place(params, width, height, random)
    image = Image.fromarray(sample.pixels)
    if not np.array_equal(placement, IDENTITY):
        (scale_x, shift_x), (scale_y, shift_y) = placement
        inverse = (1 / scale_x, 0, -shift_x / scale_x, 0, 1 / scale_y, -shift_y / scale_y)
        image = image.transform(
            (width, height),
            Image.Transform.AFFINE,
            inverse,
            Image.Resampling.BILINEAR,
            fillcolor=FILL,
        )
    colour_map = colour(params, random)
    if not np.array_equal(colour_map, NO_CHANGE):
        image = image.convert("RGB", tuple(colour_map.ravel()))
    boxes, is_visible = move_boxes(sample.boxes, placement, width, height, params.min_visible)
    return Sample(np.array(image), boxes[is_visible], sample.labels[is_visible])


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
    placement = np.array([[scale, offset[0]], [scale, offset[1]]])
    if random.random() < params.flip:
        placement[0] = [-placement[0, 0], width - placement[0, 1]]
    return placement


def move_boxes(
    boxes: np.ndarray, placement: np.ndarray, width: int, height: int, min_visible: float
) -> tuple[np.ndarray, np.ndarray]:
    """Scales and shifts boxes, and clips them to the frame.

    Args:
        boxes: ndarray of shape (N, 4).
        placement: Scale and shift; see `place`.
        width, height: Size of the frame in pixels.
        min_visible: Smallest fraction of a box's area that is in the frame.

    Returns:
        ndarray of shape (N, 4), float32; and a mask, shape (N,), of the boxes that are visible.
    """
    corners = boxes.reshape(-1, 2, 2) * placement[:, 0] + placement[:, 1]
    moved = np.concatenate([corners.min(axis=1), corners.max(axis=1)], axis=1)
    clipped = np.clip(moved, 0, (width, height, width, height))
    shorter_sides = (clipped[:, 2:] - clipped[:, :2]).min(axis=1, initial=np.inf)
    is_visible = shorter_sides >= 1
    is_visible &= _areas(clipped) >= min_visible * _areas(moved)
    return clipped.astype(np.float32), is_visible


def _areas(boxes: np.ndarray) -> np.ndarray:
    return (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])


def colour(params: Augmentation, random: np.random.Generator) -> np.ndarray:
    """Random affine map of colours for hue, saturation, contrast and brightness.

    Returns:
        ndarray of shape (3, 4), for colours from 0 to 255.
    """
    limits = (params.hue * 2 * math.pi, params.saturation, params.contrast, params.brightness)
    hue_angle, saturation, contrast, brightness = random.uniform(-1, 1, 4) * limits
    grey = np.tile(LUMA, (3, 1))
    matrix = (1 + saturation) * np.eye(3) - saturation * grey
    matrix = (1 + contrast) * (1 + brightness) * matrix @ _rotation(hue_angle)
    offset = -contrast * (1 + brightness) * 127.5
    return np.hstack([matrix, np.full((3, 1), offset)])


def _rotation(angle: float) -> np.ndarray:
    """Rotation of the colour cube about its grey diagonal (Rodrigues)."""
    axis = 1 / math.sqrt(3)
    cross = axis * np.array([[0, -1, 1], [1, 0, -1], [-1, 1, 0]])
    return np.eye(3) + math.sin(angle) * cross + (1 - math.cos(angle)) * cross @ cross
