"""Putting cut-outs into a picture so that it is known, pixel by pixel, what belongs to which."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageFilter

from farther.tools.derived.parameters import Pasting

#: A pixel belongs to an object when its alpha is at least this, of 255.
OPAQUE = 128

#: Sizes that are tried, as shares of the one that was drawn.
SMALLER = (1.0, 0.75, 0.5)

#: Colours are stretched or squeezed by no more than this.
CONTRAST = 2.0

#: Owner of the pixels that belong to no pasted object.
NOBODY = -1


@dataclass(frozen=True)
class Shape:
    """How a cut-out is to look.

    Args:
        side: Its longest side in pixels, before it is turned.
        is_mirrored: Whether left and right change places.
        degrees: Turned counter-clockwise.
        feather: Radius in pixels over which the edge fades inwards.
    """

    side: float
    is_mirrored: bool = False
    degrees: float = 0.0
    feather: float = 0.0

    def of(self, picture: Image.Image) -> Image.Image | None:
        """The cut-out in this shape, without empty margins.

        Args:
            picture: RGBA, without empty margins.

        Returns:
            RGBA; None where nothing opaque is left of it.
        """
        scale = self.side / max(picture.size)
        width, height = (max(1, round(length * scale)) for length in picture.size)
        picture = picture.resize((width, height), Image.Resampling.BICUBIC)
        if self.is_mirrored:
            picture = picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        if self.degrees:
            picture = picture.rotate(self.degrees, Image.Resampling.BICUBIC, expand=True)
        if self.feather:
            picture.putalpha(_feathered(picture.getchannel("A"), self.feather))
        return trimmed(picture)


class Canvas:
    """A scene into which objects are put, each in front of those before it.

    Args:
        scene: ndarray of shape (height, width, 3), uint8.
        box: ndarray of shape (N, 4): boxes of the objects that it shows: edges in pixels.

    Attributes:
        pixels: ndarray of shape (height, width, 3), uint8: the picture as it is now.
        owner: ndarray of shape (height, width), int16: the number of the pasted object that each pixel belongs to.
    """

    def __init__(self, scene: np.ndarray, box: np.ndarray):
        self.pixels = scene.copy()
        self.box = np.asarray(box, dtype=np.float64).reshape(-1, 4)
        self.owner: np.ndarray = np.full(scene.shape[:2], NOBODY, dtype=np.int16)
        self.sizes: list[int] = []
        """Opaque pixels of each pasted object."""

    def hides(self, picture: Image.Image, left: int, top: int) -> float:
        """The largest share of any object that would be covered, by this one and by those that are there already.

        Args:
            picture: RGBA; it lies within the scene as a whole.
            left, top: Where its corner would be.
        """
        mask = _opaque(picture)
        owner = self.owner[top : top + mask.shape[0], left : left + mask.shape[1]]
        lost = np.bincount(owner[mask & (owner != NOBODY)], minlength=len(self.sizes))
        shares = [self._covered(number) + lost[number] / size for number, size in enumerate(self.sizes)]
        covered = self.owner != NOBODY
        covered[top : top + mask.shape[0], left : left + mask.shape[1]] |= mask
        shares += [float(window.mean()) for window in map(covered.__getitem__, map(_window, self.box)) if window.size]
        return max(shares, default=0.0)

    def paste(self, picture: Image.Image, left: int, top: int) -> int:
        """Puts an object in front of all others; returns its number.

        Args:
            picture: RGBA; it lies within the scene as a whole.
            left, top: Where its corner is to be.
        """
        mask = _opaque(picture)
        inside = slice(top, top + mask.shape[0]), slice(left, left + mask.shape[1])
        values = np.asarray(picture, dtype=np.float32)
        alpha = values[..., 3:] / 255
        blended = values[..., :3] * alpha + self.pixels[inside] * (1 - alpha)
        self.pixels[inside] = np.round(blended).astype(np.uint8)
        self.owner[inside][mask] = len(self.sizes)
        self.sizes.append(int(mask.sum()))
        return len(self.sizes) - 1

    def visible_box(self, number: int) -> np.ndarray | None:
        """Edges of what can be seen of a pasted object, float64 (4,); None where nothing can."""
        return _extent(self.owner == number)

    def area(self, number: int) -> int:
        """Pixels of a pasted object that can be seen."""
        return int(np.sum(self.owner == number))

    def known_boxes(self) -> np.ndarray:
        """Boxes of the scene's own objects as far as nothing covers them, float64 (N, 4).

        An edge moves in where all of the box along it is covered. What of an object lies in the box is not known, so a
        box may stay larger than what is seen of the object. A box that is covered as a whole stays as it was.
        """
        boxes = self.box.copy()
        for row, box in enumerate(self.box):
            rows, columns = _window(box)
            free = _extent(self.owner[rows, columns] == NOBODY)
            if free is not None:
                whole = np.array([0, 0, columns.stop - columns.start, rows.stop - rows.start])
                seen = free + np.array([columns.start, rows.start] * 2)
                boxes[row] = np.where(free == whole, box, seen)
        return boxes

    def _covered(self, number: int) -> float:
        return 1 - self.area(number) / self.sizes[number]


def place(canvas: Canvas, picture: Image.Image, side: float, params: Pasting, rng: np.random.Generator) -> int | None:
    """Puts a cut-out somewhere into a scene where it hides little.

    Args:
        canvas: The scene.
        picture: RGBA, without empty margins.
        side: The longest side it shall have, in pixels; less where there is no room.
        params: How it may look and what it may hide.
        rng: Source of the random choices.

    Returns:
        The object's number; None where there is no room for it.
    """
    height, width = canvas.owner.shape
    is_mirrored = bool(rng.random() < params.mirrored)
    degrees = float(rng.uniform(-params.rotate, params.rotate))
    for smaller in SMALLER:
        shaped = Shape(side * smaller, is_mirrored, degrees, params.feather).of(picture)
        if shaped is None or shaped.width > width or shaped.height > height:
            continue
        if params.match_colours:
            shaped = matched(shaped, canvas.pixels, params.match_colours)
        for _ in range(params.tries):
            left = int(rng.integers(width - shaped.width + 1))
            top = int(rng.integers(height - shaped.height + 1))
            if canvas.hides(shaped, left, top) <= params.hidden:
                return canvas.paste(shaped, left, top)
    return None


def trimmed(picture: Image.Image) -> Image.Image | None:
    """An RGBA picture without empty margins; None when nothing in it is opaque."""
    extent = _extent(np.asarray(picture.getchannel("A")) > 0)
    if extent is None or not _opaque(picture).any():
        return None
    left, top, right, bottom = extent.astype(int).tolist()
    return picture.crop((left, top, right, bottom))


def matched(picture: Image.Image, scene: np.ndarray, share: float) -> Image.Image:
    """A cut-out whose colours are moved to those of a scene: mean and spread of each channel.

    Args:
        picture: RGBA.
        scene: ndarray of shape (height, width, 3), uint8.
        share: How far, 0 to 1.
    """
    values = np.asarray(picture, dtype=np.float64)
    colours, own = values[..., :3], values[_opaque(picture)][:, :3]
    around = scene.reshape(-1, 3).astype(np.float64)
    ratio = np.clip(around.std(axis=0) / np.maximum(own.std(axis=0), 1e-9), 1 / CONTRAST, CONTRAST)
    middle = own.mean(axis=0)
    moved = (colours - middle) * (1 + share * (ratio - 1)) + middle + share * (around.mean(axis=0) - middle)
    result = Image.fromarray(np.clip(np.round(moved), 0, 255).astype(np.uint8))
    result.putalpha(picture.getchannel("A"))
    return result


def _feathered(alpha: Image.Image, radius: float) -> Image.Image:
    """Alpha that fades inwards: outwards it would take what was around the object with it."""
    margin = int(np.ceil(3 * radius))
    wide = Image.new("L", (alpha.width + 2 * margin, alpha.height + 2 * margin))
    wide.paste(alpha, (margin, margin))
    blurred = np.asarray(wide.filter(ImageFilter.GaussianBlur(radius)), dtype=np.int16)
    inner = blurred[margin : margin + alpha.height, margin : margin + alpha.width]
    return Image.fromarray(np.minimum(np.clip(2 * inner - 255, 0, 255), np.asarray(alpha)).astype(np.uint8))


def _opaque(picture: Image.Image) -> np.ndarray:
    return np.asarray(picture.getchannel("A")) >= OPAQUE


def _extent(mask: np.ndarray) -> np.ndarray | None:
    """Edges xmin, ymin, xmax, ymax of what is set, float64 (4,); None when nothing is."""
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    if not len(rows):
        return None
    return np.array([columns[0], rows[0], columns[-1] + 1, rows[-1] + 1], dtype=np.float64)


def _window(box: np.ndarray) -> tuple[slice, slice]:
    """Rows and columns of the pixels that a box touches."""
    left, top = np.floor(box[:2]).astype(int).tolist()
    right, bottom = np.ceil(box[2:]).astype(int).tolist()
    return slice(max(top, 0), bottom), slice(max(left, 0), right)
