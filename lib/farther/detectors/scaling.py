"""Scaling of images for networks that do not scale their input."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from PIL import Image


@dataclass(frozen=True)
class Scaled:
    """An image as the input of a network.

    Args:
        pixels: ndarray of shape (H, W, 3), uint8, red green blue.
        original: Height and width of the image before scaling and padding.
    """

    pixels: np.ndarray
    original: tuple[int, int]


def scaled_sides(height: int, width: int, shorter: int, longer: int) -> tuple[int, int]:
    """Height and width of an image after scaling its shorter side to a length.

    The aspect ratio is kept. Sides are rounded to the nearest pixel, as in Detectron2's
    `ResizeShortestEdge`; torchvision rounds down.

    Args:
        height, width: Of the image.
        shorter: Length of the shorter side …
        longer: … unless the longer side would exceed this length, to which it is then scaled.

    >>> scaled_sides(480, 640, 800, 1333), scaled_sides(375, 1242, 800, 1333)
    ((800, 1067), (402, 1333))
    """
    smaller_side = min(height, width)
    factor = shorter / smaller_side
    new_height = shorter if height == smaller_side else height * factor
    new_width = shorter if width == smaller_side else width * factor
    larger_side = max(new_height, new_width)
    if larger_side > longer:
        # In two steps, as in Detectron2, so that half pixels are rounded in the same direction.
        factor = longer / larger_side
        new_height = new_height * factor
        new_width = new_width * factor
    return max(int(new_height + 0.5), 1), max(int(new_width + 0.5), 1)


def scale(image: np.ndarray, shorter: int, longer: int) -> Scaled:
    """Scales an image of bytes with Pillow, bilinear, as Detectron2 does by default.

    Pillow averages all pixels that are merged, and rounds to bytes; interpolating a float tensor
    does neither, and changes the scores of networks that were trained with Pillow.

    Args:
        image: ndarray of shape (H, W, 3), uint8.
        shorter, longer: See `scaled_sides`.
    """
    original = image.shape[0], image.shape[1]
    height, width = scaled_sides(*original, shorter, longer)
    resized = Image.fromarray(image).resize((width, height), Image.Resampling.BILINEAR)
    return Scaled(np.array(resized), original)
