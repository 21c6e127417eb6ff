"""Places objects where they hide little of each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from PIL import Image

from farther_demo.canvas import Box, Canvas, Look, outline, run_lengths, transformed
from farther_demo.drawings import Drawing, opaque_extent, sprite
from farther_demo.recipes import PlannedObject

Rng = np.random.Generator
Chooser = Callable[[Rng, str], Drawing]
#: An object with a smaller visible fraction is not annotated.
LEAST_VISIBLE = 0.3
#: Number of places tried per object.
TRIES = 14

#: A new object is placed only where at least this fraction of itself and of all others stays
#: visible. It exceeds LEAST_VISIBLE, so that only a later obstacle leaves a visible object without
#: an annotation.
_LEAST_VISIBLE_AFTER_PLACING = 0.45
#: Largest size in pixels at which drawings are rasterised.
_LARGEST_RENDER = 256


@dataclass(frozen=True)
class SceneObject:
    """An object, or a crowd, and its visible part."""

    category: str
    concept: str
    drawings: tuple[str, ...]
    """Keys of the drawings that show it."""
    sprites: tuple[int, ...]
    """Their numbers in `Scene.owner`."""
    box: Box
    """Pixel edges xmin, ymin, xmax, ymax of the visible part."""
    area: int
    """Visible pixels."""
    visible: float
    """Fraction of its pixels that is visible."""
    truncated: bool
    """True if it extends beyond the image."""
    labelled: bool
    """True if the annotators labelled it."""
    segments: tuple[int, ...] = ()
    """Polygon x, y, x, y, ... of an object; run lengths of a group's mask, column by column."""

    @property
    def annotated(self) -> bool:
        """True if the annotation file contains it."""
        return self.labelled and self.visible >= LEAST_VISIBLE

    @property
    def is_group(self) -> bool:
        """True if the box contains several objects."""
        return len(self.sprites) > 1

    @property
    def occluded(self) -> bool:
        """True if more than a tenth of it is hidden."""
        return self.visible < 0.9


def render_size(size: int) -> int:
    """Width in pixels at which the drawings of scenes of a size are rasterised."""
    return min(size, _LARGEST_RENDER)


class _Spot(NamedTuple):
    """A sprite and its place."""

    image: Image.Image
    left: int
    top: int


@dataclass
class _Placed:
    """An object on the canvas."""

    wanted: PlannedObject
    numbers: list[int] = field(default_factory=list)
    """Numbers of its sprites."""
    drawings: list[str] = field(default_factory=list)
    """Keys of its drawings."""
    boxes: list[Box] = field(default_factory=list)
    """Box of each sprite before anything covered it."""

    def centre(self) -> tuple[float, float]:
        """Middle of the first sprite."""
        left, top, right, bottom = self.boxes[0]
        return (left + right) / 2, (top + bottom) / 2


class Placer:
    """Places objects on a canvas.

    Args:
        rng: Source of random numbers.
        size: Longest side of the scene in pixels.
        canvas: The scene.
        choose: Returns a drawing of a concept.
    """

    def __init__(self, rng: Rng, size: int, canvas: Canvas, choose: Chooser):
        self._rng = rng
        self._size = size
        self._canvas = canvas
        self._choose = choose
        self._render = render_size(size)
        self._placed: list[_Placed | None] = []

    def place(self, wanted: PlannedObject) -> None:
        """Places an object anywhere or on its support, or leaves it out when there is no room."""
        support = None
        if wanted.support is not None:
            support = self._placed[wanted.support]
            if support is None:
                self._placed.append(None)
                return

        placed = _Placed(wanted)
        for _ in range(wanted.copies):
            drawing = self._choose(self._rng, wanted.concept)
            centre = placed.centre() if placed.boxes else None
            spot = self._spot(wanted, drawing, support, centre)
            if spot is not None:
                self._paste(placed, drawing, spot)
        self._placed.append(placed if placed.numbers else None)

    def stand(
        self, wanted: PlannedObject, drawing: Drawing, look: Look, left: int, bottom: int
    ) -> bool:
        """Places an object with its lower edge on a row, unless it would hide too much.

        Returns:
            Whether it was placed.
        """
        image = transformed(sprite(drawing, self._render), look)
        spot = _Spot(image, left, bottom - image.height)
        if not self._has_room(spot):
            return False
        placed = _Placed(wanted)
        self._paste(placed, drawing, spot)
        self._placed.append(placed)
        return True

    def clutter(self, concept: str, size: float) -> None:
        """Draws a distractor, which is not an object, anywhere."""
        drawing = self._choose(self._rng, concept)
        image = transformed(sprite(drawing, self._render), self._look(size, lean=40.0))
        left, top = self._anywhere(image)
        self._canvas.obstruct(image, left, top)

    def objects(self) -> tuple[SceneObject, ...]:
        """All objects that are at least partly visible."""
        objects = []
        for placed in self._placed:
            if placed is None:
                continue
            visible_object = self._visible_object(placed)
            if visible_object is not None:
                objects.append(visible_object)
        return tuple(objects)

    def _visible_object(self, placed: _Placed) -> SceneObject | None:
        """An object and its visible part; None where nothing of it is visible."""
        mask = self._canvas.visible(placed.numbers)
        box = opaque_extent(mask)
        if box is None:
            return None
        area = int(mask.sum())
        return SceneObject(
            category=placed.wanted.category,
            concept=placed.wanted.concept,
            drawings=tuple(placed.drawings),
            sprites=tuple(placed.numbers),
            box=box,
            area=area,
            visible=area / self._canvas.size_of(placed.numbers),
            truncated=any(self._is_beyond(sprite_box) for sprite_box in placed.boxes),
            labelled=placed.wanted.labelled,
            segments=run_lengths(mask) if len(placed.numbers) > 1 else outline(mask),
        )

    def _paste(self, placed: _Placed, drawing: Drawing, spot: _Spot) -> None:
        """Pastes a sprite of an object."""
        image, left, top = spot
        placed.numbers.append(self._canvas.paste(image, left, top))
        placed.drawings.append(drawing.key)
        placed.boxes.append((left, top, left + image.width, top + image.height))

    def _has_room(self, spot: _Spot) -> bool:
        """True where a sprite would leave enough of itself and of all others visible."""
        least_visible = self._canvas.least_visible_after(spot.image, spot.left, spot.top)
        return least_visible >= _LEAST_VISIBLE_AFTER_PLACING

    def _is_beyond(self, box: Box) -> bool:
        """True for a box that extends beyond the image."""
        height, width = self._canvas.owner.shape
        left, top, right, bottom = box
        return left < 0 or top < 0 or right > width or bottom > height

    def _spot(
        self,
        wanted: PlannedObject,
        drawing: Drawing,
        support: _Placed | None,
        centre: tuple[float, float] | None,
    ) -> _Spot | None:
        """A sprite and a place for it; None after too many tries.

        Args:
            wanted: The object.
            drawing: Its drawing.
            support: The object that it is placed on, if any.
            centre: Middle of the crowd that it is placed in, if any.
        """
        low, high = wanted.scale
        lean = 4.0 if support or wanted.concept == "diningtable" else 14.0
        for attempt in range(TRIES):
            # Later tries ask for less room.
            largest = low + (high - low) * (1 - attempt / TRIES)
            size = self._size * low * (largest / low) ** self._rng.random()
            image = transformed(sprite(drawing, self._render), self._look(size, lean))
            if support:
                left, top = self._on(support.boxes[0], image)
            elif centre:
                left, top = self._around(centre, image)
            else:
                left, top = self._anywhere(image)
            spot = _Spot(image, left, top)
            if self._has_room(spot):
                return spot
        return None

    def _look(self, size: float, lean: float) -> Look:
        """A random look; `lean` is the standard deviation of the rotation in degrees."""
        rng = self._rng
        return Look(
            size=size,
            degrees=float(rng.normal(0, lean)),
            mirrored=bool(rng.random() < 0.5),
            stretch=float(rng.uniform(0.88, 1.14)),
            hue=float(rng.normal(0, 9)),
            saturation=float(rng.uniform(0.65, 1.15)),
            brightness=float(rng.uniform(0.75, 1.08)),
        )

    def _on(self, support: Box, image: Image.Image) -> tuple[int, int]:
        """Left and top of an object on a table; the upper part of the support is its surface."""
        left, top, right, bottom = support
        inset = 0.08 * (right - left)
        x = self._rng.uniform(left + inset, max(right - inset - image.width, left + inset + 1))
        surface = top + self._rng.uniform(0.12, 0.36) * (bottom - top)
        return round(x), round(surface - image.height)

    def _around(self, centre: tuple[float, float], image: Image.Image) -> tuple[int, int]:
        """Left and top of a member of a crowd."""
        x, y = centre + self._rng.normal(0, 0.13 * self._size, 2)
        return round(x - image.width / 2), round(y - image.height / 2)

    def _anywhere(self, image: Image.Image) -> tuple[int, int]:
        """Left and top, mostly with all of the sprite inside the image."""
        height, width = self._canvas.owner.shape
        x = self._rng.uniform(-0.15 * image.width, width - 0.85 * image.width)
        y = self._rng.uniform(-0.15 * image.height, height - 0.85 * image.height)
        return round(x), round(y)
