"""Pastes cut-outs into an image and records which object each pixel belongs to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from PIL import Image, ImageFilter
from pydantic import Field, PositiveInt
from pydantic.dataclasses import dataclass as checked

from farther.derived.base import Share
from farther.errors import ParameterError
from farther.images.read import without_pillow_limit
from farther.naming.registry import STRICT, Parameters

#: Smallest alpha (of 255) of the pixels that belong to an object.
OPAQUE = 128

#: Sizes to try, as shares of the size that was drawn.
SIZE_FACTORS = (1.0, 0.75, 0.5)

#: Largest factor by which the contrast of colours is changed, up or down.
CONTRAST = 2.0

#: Owner of pixels that belong to no pasted object.
NO_OBJECT = -1

Side = Annotated[float, Field(gt=0, le=1)]


@checked(config=STRICT, kw_only=True)
class Pasting(Parameters):
    """Parameters of pasting cut-outs into a scene.

    Args:
        objects: Smallest and largest number of objects per scene.
        size: Range of an object's longest side, as a share of the scene's longest side, drawn
            log-uniformly. None: the size of a random ID object of the scenes.
        enlarge: Largest factor by which a cut-out is enlarged; more would blur it.
        hidden: Largest share of an ID object's box, or of another pasted object, that may be
            covered.
        mirrored: Share of the objects that are mirrored.
        rotate: Largest rotation in degrees, in either direction.
        feather: Radius in pixels over which the object's edge fades, inwards.
        match_colours: Degree to which an object's colours are moved to the scene's; at 1 mean and
            standard deviation of each channel are equal.
        tries: Number of places tried at each of three sizes (the one drawn, 3/4 and 1/2 of it)
            before the object is left out.
    """

    objects: tuple[PositiveInt, PositiveInt] = (1, 3)
    size: tuple[Side, Side] | None = None
    enlarge: Annotated[float, Field(gt=0)] = 1.5
    hidden: Share = 0.3
    mirrored: Share = 0.5
    rotate: Annotated[float, Field(ge=0, le=180)] = 0.0
    feather: Annotated[float, Field(ge=0)] = 1.0
    match_colours: Share = 0.0
    tries: PositiveInt = 12

    def __post_init__(self) -> None:
        for name in ("objects", "size"):
            bounds = getattr(self, name)
            if bounds is not None and bounds[0] > bounds[1]:
                raise ParameterError(f"parameter {name!r}: {bounds[0]} is more than {bounds[1]}")


@dataclass(frozen=True)
class Shape:
    """Size, rotation and edge of a pasted cut-out.

    Args:
        side: Longest side in pixels, before rotation.
        is_mirrored: Whether left and right are swapped.
        degrees: Counter-clockwise rotation.
        feather: Radius in pixels over which the edge fades inwards.
    """

    side: float
    is_mirrored: bool = False
    degrees: float = 0.0
    feather: float = 0.0

    def transform(self, picture: Image.Image) -> Image.Image | None:
        """The transformed RGBA cut-out, without empty margins.

        Returns:
            None where nothing opaque is left.
        """
        scale = self.side / max(picture.size)
        width = max(1, round(picture.width * scale))
        height = max(1, round(picture.height * scale))
        picture = picture.resize((width, height), Image.Resampling.BICUBIC)
        if self.is_mirrored:
            picture = picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        if self.degrees:
            picture = picture.rotate(self.degrees, Image.Resampling.BICUBIC, expand=True)
        if self.feather:
            picture.putalpha(_feathered(picture.getchannel("A"), self.feather))
        return trimmed(picture)


class Canvas:
    """A scene into which objects are pasted, each in front of the earlier ones.

    Args:
        scene: ndarray of shape (height, width, 3), uint8.
        box: ndarray of shape (N, 4): boxes of the scene's objects; edges in pixels.

    Attributes:
        pixels: ndarray of shape (height, width, 3), uint8: the current image.
        owner: ndarray of shape (height, width), int16: number of the pasted object that each pixel
            belongs to.
        sizes: Number of opaque pixels of each pasted object.
    """

    def __init__(self, scene: np.ndarray, box: np.ndarray):
        self.pixels = scene.copy()
        self.box = np.asarray(box, dtype=np.float64).reshape(-1, 4)
        self.owner: np.ndarray = np.full(scene.shape[:2], NO_OBJECT, dtype=np.int16)
        self.sizes: list[int] = []

    def hides(self, picture: Image.Image, left: int, top: int) -> float:
        """Largest share of any object that would be covered after pasting.

        Args:
            picture: RGBA, entirely within the scene.
            left, top: Position of its upper left corner.
        """
        mask = _opaque(picture)
        window = _window_at(left, top, mask)
        owner = self.owner[window]
        newly_hidden = np.bincount(owner[mask & (owner != NO_OBJECT)], minlength=len(self.sizes))
        shares: list[float] = []
        for number, size in enumerate(self.sizes):
            shares.append(self._covered(number) + newly_hidden[number] / size)

        is_covered = self.owner != NO_OBJECT
        is_covered[window] |= mask
        for box in self.box:
            covered_in_box = is_covered[_window_of(box)]
            if covered_in_box.size:
                shares.append(float(covered_in_box.mean()))
        return max(shares, default=0.0)

    def paste(self, picture: Image.Image, left: int, top: int) -> int:
        """Pastes an object in front of all others and returns its number.

        For the arguments see `hides`.
        """
        mask = _opaque(picture)
        window = _window_at(left, top, mask)
        values = np.asarray(picture, dtype=np.float32)
        alpha = values[..., 3:] / 255
        blended = values[..., :3] * alpha + self.pixels[window] * (1 - alpha)
        self.pixels[window] = np.round(blended).astype(np.uint8)

        number = len(self.sizes)
        self.owner[window][mask] = number
        self.sizes.append(int(mask.sum()))
        return number

    def visible_box(self, number: int) -> np.ndarray | None:
        """Box of the visible part of a pasted object, float64 of shape (4,); None if hidden."""
        return _extent(self.owner == number)

    def area(self, number: int) -> int:
        """Number of visible pixels of a pasted object."""
        return int(np.sum(self.owner == number))

    def known_boxes(self) -> np.ndarray:
        """Boxes of the visible parts of the scene's objects, float64 of shape (N, 4).

        An edge moves inwards where the box is covered all along it. The pixels of an object within
        its box are not known, so a box may be larger than the visible part. A box that is covered
        entirely does not change.
        """
        boxes = self.box.copy()
        for index, box in enumerate(self.box):
            rows, columns = _window_of(box)
            uncovered = _extent(self.owner[rows, columns] == NO_OBJECT)
            if uncovered is None:
                continue
            width = columns.stop - columns.start
            height = rows.stop - rows.start
            is_free_edge = uncovered == (0, 0, width, height)
            offset = (columns.start, rows.start, columns.start, rows.start)
            boxes[index] = np.where(is_free_edge, box, uncovered + offset)
        return boxes

    def _covered(self, number: int) -> float:
        """Share of a pasted object that later ones cover."""
        return 1 - self.area(number) / self.sizes[number]


def place(
    canvas: Canvas, picture: Image.Image, side: float, params: Pasting, rng: np.random.Generator
) -> int | None:
    """Pastes a cut-out at a random place where it hides little.

    Args:
        canvas: The scene.
        picture: RGBA, without empty margins.
        side: Longest side in pixels; smaller where there is no room.
        params: Limits on its shape and on the share of objects that it hides.
        rng: Source of random numbers.

    Returns:
        Number of the pasted object; None where there is no room.
    """
    height, width = canvas.owner.shape
    is_mirrored = bool(rng.random() < params.mirrored)
    degrees = float(rng.uniform(-params.rotate, params.rotate))
    for size_factor in SIZE_FACTORS:
        shape = Shape(side * size_factor, is_mirrored, degrees, params.feather)
        shaped = shape.transform(picture)
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
    """Crops the empty margins of an RGBA image; None when nothing is opaque."""
    extent = _extent(np.asarray(picture.getchannel("A")) > 0)
    if extent is None or not _opaque(picture).any():
        return None
    left, top, right, bottom = extent.astype(int).tolist()
    with without_pillow_limit():
        return picture.crop((left, top, right, bottom))


def matched(picture: Image.Image, scene: np.ndarray, share: float) -> Image.Image:
    """Moves the colours of a cut-out towards mean and standard deviation of a scene, per channel.

    Args:
        picture: RGBA cut-out.
        scene: ndarray of shape (height, width, 3), uint8.
        share: Degree, 0 to 1.
    """
    colours = np.asarray(picture, dtype=np.float64)[..., :3]
    object_colours = colours[_opaque(picture)]
    scene_colours = scene.reshape(-1, 3).astype(np.float64)

    object_mean = object_colours.mean(axis=0)
    scene_mean = scene_colours.mean(axis=0)
    object_deviation = np.maximum(object_colours.std(axis=0), 1e-9)
    ratio = np.clip(scene_colours.std(axis=0) / object_deviation, 1 / CONTRAST, CONTRAST)
    contrast = 1 + share * (ratio - 1)
    moved = (colours - object_mean) * contrast + object_mean + share * (scene_mean - object_mean)
    result = Image.fromarray(np.clip(np.round(moved), 0, 255).astype(np.uint8))
    result.putalpha(picture.getchannel("A"))
    return result


def _feathered(alpha: Image.Image, radius: float) -> Image.Image:
    """Alpha that fades inwards; fading outwards would include the object's surroundings."""
    margin = int(np.ceil(3 * radius))
    wide = Image.new("L", (alpha.width + 2 * margin, alpha.height + 2 * margin))
    wide.paste(alpha, (margin, margin))
    blurred = np.asarray(wide.filter(ImageFilter.GaussianBlur(radius)), dtype=np.int16)
    inner = blurred[margin : margin + alpha.height, margin : margin + alpha.width]
    faded = np.clip(2 * inner - 255, 0, 255)
    return Image.fromarray(np.minimum(faded, np.asarray(alpha)).astype(np.uint8))


def _opaque(picture: Image.Image) -> np.ndarray:
    """Mask of the pixels of an RGBA image that belong to the object, shape (height, width)."""
    return np.asarray(picture.getchannel("A")) >= OPAQUE


def _extent(mask: np.ndarray) -> np.ndarray | None:
    """Box of the set pixels, float64 (4,): xmin, ymin, xmax, ymax; None when none is set."""
    rows = np.flatnonzero(mask.any(axis=1))
    columns = np.flatnonzero(mask.any(axis=0))
    if not len(rows):
        return None
    return np.array([columns[0], rows[0], columns[-1] + 1, rows[-1] + 1], dtype=np.float64)


def _window_at(left: int, top: int, mask: np.ndarray) -> tuple[slice, slice]:
    """Rows and columns of an image that a mask covers at a position."""
    height, width = mask.shape
    return slice(top, top + height), slice(left, left + width)


def _window_of(box: np.ndarray) -> tuple[slice, slice]:
    """Rows and columns of the pixels that overlap a box."""
    left, top = np.floor(box[:2]).astype(int).tolist()
    right, bottom = np.ceil(box[2:]).astype(int).tolist()
    return slice(max(top, 0), bottom), slice(max(left, 0), right)
