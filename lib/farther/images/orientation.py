"""Orientation of image files: the EXIF tag that says how stored pixels are turned to be displayed.

A camera stores rows as its sensor reads them; programs that show the image turn it. Values are
those of EXIF 2.32 (CIPA DC-008, 4.6.4): 1 upright, 2 to 4 mirrored or upside down, 5 to 8 on the
side, with width and height exchanged.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from PIL import Image

#: Number of the tag.
TAG = 0x0112

#: Value of the tag for pixels that are stored as they are displayed.
UPRIGHT = 1

#: Pillow's operation from stored to displayed pixels.
TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}

#: Orientations that turn displayed pixels back into stored ones; the others undo themselves.
BACK = {6: 8, 8: 6}


def orientation_of(image: Image.Image) -> int:
    """Orientation of an opened image.

    It is that of the image's pixels, or, before it is loaded, of those in its file. As for browsers
    and OpenCV, only EXIF (and TIFF's own tag) counts, not XMP. Pillow turns TIFF itself while
    loading.

    Returns:
        1 to 8; 1 without a tag, or with one that is damaged or has another value.
    """
    tags: Any = getattr(image, "tag_v2", None)
    content = image.info.get("exif")
    if tags is None and not content:
        return UPRIGHT
    try:
        if tags is None:
            tags = Image.Exif()
            tags.load(content)
        value = tags.get(TAG)
        if value not in TURNS:
            return UPRIGHT
        return int(value)
    except Exception:  # parsers raise SyntaxError, struct.error, … over damaged data
        return UPRIGHT


def turned(image: Image.Image, orientation: int) -> Image.Image:
    """The displayed image of stored pixels."""
    if orientation not in TURNS:
        return image
    return image.transpose(TURNS[orientation])


def upright(image: Image.Image) -> Image.Image:
    """An opened image as it is displayed.

    Equals `PIL.ImageOps.exif_transpose`, but keeps the tag.
    """
    image.load()  # a PNG file may have its tag behind its pixels
    return turned(image, orientation_of(image))


def turned_size(width: int, height: int, orientation: int) -> tuple[int, int]:
    """Converts a stored size to the displayed size, or a displayed one to the stored size.

    >>> turned_size(640, 480, 6), turned_size(640, 480, 3)
    ((480, 640), (640, 480))
    """
    if orientation >= 5:
        return height, width
    return width, height


def turned_boxes(box: np.ndarray, size: np.ndarray, orientation: np.ndarray) -> np.ndarray:
    """Converts boxes of stored pixels to boxes of the displayed image.

    Args:
        box: Edges xmin, ymin, xmax, ymax, shape (N, 4).
        size: Stored width and height of each box's image, in the boxes' unit, shape (N, 2).
        orientation: Of each box's image, 1 to 8, shape (N,).

    Returns:
        ndarray of shape (N, 4).

    >>> turned_boxes(np.array([[1.0, 2.0, 4.0, 3.0]]), np.array([[8, 6]]), np.array([6])).tolist()
    [[3.0, 1.0, 4.0, 4.0]]
    """
    is_mirrored_x = np.isin(orientation, (2, 3, 7, 8))
    is_mirrored_y = np.isin(orientation, (3, 4, 6, 7))
    is_mirrored = np.stack([is_mirrored_x, is_mirrored_y], axis=1)
    low = np.where(is_mirrored, size - box[:, 2:], box[:, :2])
    high = np.where(is_mirrored, size - box[:, :2], box[:, 2:])
    is_exchanged = (orientation >= 5)[:, None]
    low = np.where(is_exchanged, low[:, ::-1], low)
    high = np.where(is_exchanged, high[:, ::-1], high)
    return np.concatenate([low, high], axis=1)
