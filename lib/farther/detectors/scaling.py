"""Scaling of images before the network, for networks that do not scale their input."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from PIL import Image


@dataclass(frozen=True)
class Scaled:
    """An image as the network takes it.

    Args:
        pixels: ndarray of shape (H, W, 3), uint8, red green blue.
        original: Height and width of the image before scaling and padding.
    """

    pixels: np.ndarray
    original: tuple[int, int]


def scaled_sides(height: int, width: int, shorter: int, longer: int) -> tuple[int, int]:
    """Height and width of an image whose shorter side is brought to `shorter` pixels, or else its longer to `longer`.

    The shape is kept but for rounding, which is to the nearest pixel (Detectron2's
    `ResizeShortestEdge`; torchvision rounds down).

    >>> scaled_sides(480, 640, 800, 1333), scaled_sides(375, 1242, 800, 1333)
    ((800, 1067), (402, 1333))
    """
    factor = shorter / min(height, width)
    sides = [shorter if side == min(height, width) else side * factor for side in (height, width)]
    if max(sides) > longer:
        # In two steps, as Detectron2 computes it: half pixels are then rounded to the same side.
        factor = longer / max(sides)
        sides = [side * factor for side in sides]
    height, width = (max(int(side + 0.5), 1) for side in sides)
    return height, width


def scale(image: np.ndarray, shorter: int, longer: int) -> Scaled:
    """Scales an image of bytes with Pillow, bilinear, as Detectron2 does (its default since Wu et al. 2019).

    Pillow averages over all pixels that fall into one, and rounds to bytes; interpolating a float
    tensor does neither, and moves the scores of networks that were trained on the former.

    Args:
        image: ndarray of shape (H, W, 3), uint8.
        shorter, longer: See `scaled_sides`.
    """
    original = image.shape[0], image.shape[1]
    height, width = scaled_sides(*original, shorter, longer)
    resized = Image.fromarray(image).resize((width, height), Image.Resampling.BILINEAR)
    return Scaled(np.array(resized), original)
