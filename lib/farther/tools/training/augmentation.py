"""Random changes of a training image, boxes included."""

from __future__ import annotations

import math

import numpy as np
from PIL import Image

from farther.tools.training.recipe import Augmentation
from farther.tools.training.samples import Sample

#: How much red, green and blue count for the eye (ITU-R BT.601).
LUMA = np.array([0.299, 0.587, 0.114])
#: What shows where an image was moved away.
FILL = (114, 114, 114)


def augment(sample: Sample, how: Augmentation, random: np.random.Generator) -> Sample:
    """A changed sample of the same size; `random` decides all."""
    height, width = sample.pixels.shape[:2]
    placed = place(how, width, height, random)
    image = Image.fromarray(sample.pixels)
    if not np.array_equal(placed, IDENTITY):
        (sx, tx), (sy, ty) = placed
        back = (1 / sx, 0, -tx / sx, 0, 1 / sy, -ty / sy)
        affine, bilinear = Image.Transform.AFFINE, Image.Resampling.BILINEAR
        image = image.transform((width, height), affine, back, bilinear, fillcolor=FILL)
    recoloured = colour(how, random)
    if not np.array_equal(recoloured, NO_CHANGE):
        image = image.convert("RGB", tuple(recoloured.ravel()))
    boxes, kept = move_boxes(sample.boxes, placed, width, height, how.min_visible)
    return Sample(np.array(image), boxes[kept], sample.labels[kept])


IDENTITY = np.array([[1.0, 0.0], [1.0, 0.0]])
NO_CHANGE = np.hstack([np.eye(3), np.zeros((3, 1))])


def place(how: Augmentation, width: int, height: int, random: np.random.Generator) -> np.ndarray:
    """Where the content goes: ndarray of shape (2, 2), factor and shift in pixels for x and for y."""
    scale = math.exp(random.uniform(*np.log(how.scale)))
    shift = random.uniform(-how.translate, how.translate, 2) * (width, height)
    centre = np.array([width, height]) / 2
    offset = centre * (1 - scale) + shift
    placed = np.array([[scale, offset[0]], [scale, offset[1]]])
    if random.random() < how.flip:
        placed[0] = -placed[0, 0], width - placed[0, 1]
    return placed


def move_boxes(
    boxes: np.ndarray, placed: np.ndarray, width: int, height: int, min_visible: float
) -> tuple[np.ndarray, np.ndarray]:
    """Boxes after `placed`, clipped to the frame, and which of them still show enough.

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


def colour(how: Augmentation, random: np.random.Generator) -> np.ndarray:
    """One affine map of colours for hue, saturation, contrast and brightness: ndarray of shape (3, 4) for 0 to 255."""
    turn, saturation, contrast, brightness = random.uniform(-1, 1, 4) * (
        how.hue * 2 * math.pi,
        how.saturation,
        how.contrast,
        how.brightness,
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
