"""An image under composition that records the owner of each pixel, so that boxes are exact."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageFilter

from farther_demo.drawings import OPAQUE, opaque_extent

#: Owner of the background, and of obstacles in front of objects.
NO_OWNER = -1

#: Number of rows of an object's polygon.
OUTLINE_ROWS = 24

Box = tuple[int, int, int, int]

# Of `_colour_matrix`: the rotation about the grey axis, and the projection on it.
_IDENTITY = np.eye(3)
_AXIS = np.full((3, 3), 1 / 3)
_CROSS = np.array([[0, -1, 1], [1, 0, -1], [-1, 1, 0]]) / np.sqrt(3)
_GREY = np.tile(np.array([0.299, 0.587, 0.114]), (3, 1))


@dataclass(frozen=True)
class Look:
    """Size, rotation and colours of a pasted drawing."""

    size: float
    """Longest side, in pixels, before the rotation."""
    degrees: float = 0.0
    mirrored: bool = False
    stretch: float = 1.0
    """Factor of the width."""
    hue: float = 0.0
    """Rotation on the colour wheel in degrees."""
    saturation: float = 1.0
    brightness: float = 1.0


class Canvas:
    """An image and, for each of its pixels, the number of the sprite that owns it."""

    def __init__(self, background: Image.Image):
        self.image = background.convert("RGB")
        self.owner = np.full((background.height, background.width), NO_OWNER, dtype=np.int16)
        self.sizes: list[int] = []
        """Opaque pixels of each sprite, including those outside the image."""

    def paste(self, sprite: Image.Image, left: int, top: int) -> int:
        """Pastes a sprite in front of all others and returns its number."""
        number = len(self.sizes)
        mask = _opaque(sprite)
        self.sizes.append(int(mask.sum()))
        self._cover(sprite, mask, left, top, number)
        return number

    def obstruct(self, sprite: Image.Image, left: int, top: int) -> None:
        """Pastes something in front that is not an object."""
        self._cover(sprite, _opaque(sprite), left, top, NO_OWNER)

    def visible(self, numbers: list[int]) -> np.ndarray:
        """Mask (height, width) of the pixels that these sprites own."""
        if len(numbers) == 1:
            return self.owner == numbers[0]
        return np.isin(self.owner, numbers)

    def visible_fraction(self, numbers: list[int]) -> float:
        """Fraction of the sprites' pixels that is inside the image and not covered."""
        return float(self.visible(numbers).sum()) / self.size_of(numbers)

    def size_of(self, numbers: list[int]) -> int:
        """Number of the sprites' opaque pixels, including those outside the image."""
        return sum(self.sizes[number] for number in numbers)

    def least_visible_after(self, sprite: Image.Image, left: int, top: int) -> float:
        """Smallest visible fraction of any sprite, the new one included, after pasting."""
        mask = _opaque(sprite)
        overlap = _overlap(self.owner.shape, mask.shape, left, top)
        mask_inside = mask[overlap.in_sprite]
        visible_pixels = self._pixels_by_sprite(self.owner)
        covered_pixels = self._pixels_by_sprite(self.owner[overlap.in_image][mask_inside])

        least = float(mask_inside.sum()) / mask.sum()
        for number, size in enumerate(self.sizes):
            if covered_pixels[number]:
                fraction = (visible_pixels[number] - covered_pixels[number]) / size
                least = min(least, fraction)
        return float(least)

    def _pixels_by_sprite(self, owner: np.ndarray) -> np.ndarray:
        """Number of pixels that each sprite owns, shape (number of sprites,)."""
        return np.bincount(owner[owner != NO_OWNER], minlength=len(self.sizes))

    def _cover(
        self, sprite: Image.Image, mask: np.ndarray, left: int, top: int, number: int
    ) -> None:
        """Pastes a sprite, whose opaque pixels are `mask` and belong to `number`."""
        self.image.paste(sprite, (left, top), sprite)
        overlap = _overlap(self.owner.shape, mask.shape, left, top)
        self.owner[overlap.in_image][mask[overlap.in_sprite]] = number


def transformed(sprite: Image.Image, look: Look) -> Image.Image:
    """A sprite with a look applied and its margins cropped (see `opaque_extent`)."""
    if look.mirrored:
        sprite = sprite.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    scale = look.size / max(sprite.size)
    width = max(1, round(sprite.width * scale * look.stretch))
    height = max(1, round(sprite.height * scale))
    sprite = sprite.resize((width, height), Image.Resampling.BILINEAR, reducing_gap=2.0)
    if look.degrees:
        sprite = sprite.rotate(look.degrees, Image.Resampling.BILINEAR, expand=True)
    colours = sprite.convert("RGB").convert("RGB", _colour_matrix(look))
    colours.putalpha(sprite.getchannel("A"))
    extent = opaque_extent(_opaque(colours))
    if extent is None:
        return colours
    return colours.crop(extent)


def with_camera_effects(picture: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Effects of a camera: exposure, some blur, some noise."""
    if rng.random() < 0.3:
        picture = picture.filter(ImageFilter.GaussianBlur(float(rng.uniform(0.3, 0.9))))
    pixels = np.array(picture, dtype=np.float32)
    pixels -= 128
    pixels *= rng.uniform(0.8, 1.1)
    pixels += 128
    pixels += rng.uniform(-18, 18)
    # One grain for all three channels, as grey noise costs a third of coloured noise.
    grain = rng.standard_normal(pixels.shape[:2], dtype=np.float32)[..., None]
    pixels += grain * rng.uniform(0, 9)
    np.clip(pixels, 0, 255, out=pixels)
    return Image.fromarray(pixels.astype(np.uint8))


def run_lengths(mask: np.ndarray) -> tuple[int, ...]:
    """Run lengths of a mask, column by column: COCO's uncompressed RLE.

    The first run is one of zeros.
    """
    flat = mask.flatten(order="F")
    changes = np.flatnonzero(flat[1:] != flat[:-1]) + 1
    edges = np.concatenate([[0], changes, [flat.size]])
    lengths = np.diff(edges).tolist()
    if flat[0]:
        lengths.insert(0, 0)
    return tuple(lengths)


def outline(mask: np.ndarray) -> tuple[int, ...]:
    """Polygon x, y, x, y, ... of a mask: down its right edge and up its left edge."""
    rows = np.flatnonzero(mask.any(axis=1))
    rows = rows[np.unique(np.linspace(0, len(rows) - 1, OUTLINE_ROWS).astype(int))]
    left = mask[rows].argmax(axis=1)
    right = mask.shape[1] - mask[rows, ::-1].argmax(axis=1)
    # The last row's lower edge closes the polygon, so that even a single row has an area.
    y = np.append(rows, rows[-1] + 1)
    left = np.append(left, left[-1])
    right = np.append(right, right[-1])
    down = np.stack([right, y], axis=1)
    up = np.stack([left, y], axis=1)[::-1]
    return tuple(np.concatenate([down, up]).ravel().tolist())


def _opaque(sprite: Image.Image) -> np.ndarray:
    """Mask of the pixels that belong to a sprite, shape (height, width)."""
    return np.asarray(sprite.getchannel("A")) >= OPAQUE


class _Overlap(NamedTuple):
    """Rows and columns, of the image and of a sprite, where the two overlap."""

    in_image: tuple[slice, slice]
    in_sprite: tuple[slice, slice]


def _overlap(
    image_shape: tuple[int, ...], sprite_shape: tuple[int, ...], left: int, top: int
) -> _Overlap:
    """The overlap of an image with a sprite at a position; empty slices where there is none.

    Args:
        image_shape, sprite_shape: Height and width.
        left, top: Position of the sprite's upper left corner.
    """
    first_row = max(top, 0)
    first_column = max(left, 0)
    end_row = max(min(top + sprite_shape[0], image_shape[0]), first_row)
    end_column = max(min(left + sprite_shape[1], image_shape[1]), first_column)
    return _Overlap(
        in_image=(slice(first_row, end_row), slice(first_column, end_column)),
        in_sprite=(
            slice(first_row - top, end_row - top),
            slice(first_column - left, end_column - left),
        ),
    )


def _colour_matrix(look: Look) -> tuple[float, ...]:
    """3 x 4 matrix that rotates the hue and scales saturation and brightness; black stays black."""
    angle = np.deg2rad(look.hue)
    turn = np.cos(angle) * _IDENTITY + np.sin(angle) * _CROSS + (1 - np.cos(angle)) * _AXIS
    saturation = look.saturation * _IDENTITY + (1 - look.saturation) * _GREY
    matrix = look.brightness * saturation @ turn
    with_offset = np.zeros((3, 4))
    with_offset[:, :3] = matrix
    return tuple(with_offset.ravel().tolist())
