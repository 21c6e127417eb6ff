"""Places objects where they hide little of each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from PIL import Image

from farther_demo.canvas import Box, Canvas, Look, outline, run_lengths, transformed
from farther_demo.drawings import Drawing, opaque_extent, sprite
from farther_demo.recipes import Wanted

Rng = np.random.Generator
Chooser = Callable[[Rng, str], Drawing]
#: A sprite and its left and top.
Spot = tuple[Image.Image, int, int]

#: An object with a smaller visible fraction is not annotated.
LEAST_VISIBLE = 0.3
#: Number of places tried per object.
TRIES = 14

# A new object is placed only where at least this fraction of itself and of all others stays
# visible. It exceeds LEAST_VISIBLE, so that only a later obstacle leaves a visible object without
# an annotation.
_LEFT_BY_NEWCOMERS = 0.45
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


@dataclass
class _Placed:
    wanted: Wanted
    numbers: list[int]
    drawings: list[str]
    boxes: list[Box]
    """Box of each sprite before anything covered it."""

    def centre(self) -> tuple[float, float]:
        """Middle of the first sprite."""
        left, top, right, bottom = self.boxes[0]
        return (left + right) / 2, (top + bottom) / 2


class Placer:
    """Places objects on a canvas.

    Args:
        size: Longest side of the scene in pixels.
        choose: Returns a drawing of a concept.
    """

    def __init__(self, rng: Rng, size: int, canvas: Canvas, choose: Chooser):
        self._rng, self._size, self._canvas, self._choose = rng, size, canvas, choose
        self._render = min(size, _LARGEST_RENDER)
        self._placed: list[_Placed | None] = []

    def place(self, wanted: Wanted) -> None:
        """Places an object anywhere or on its support, or leaves it out when there is no room."""
        support = None if wanted.support is None else self._placed[wanted.support]
        if wanted.support is not None and support is None:
            self._placed.append(None)
            return
        placed = _Placed(wanted, [], [], [])
        for _ in range(wanted.copies):
            drawing = self._choose(self._rng, wanted.concept)
            centre = placed.centre() if placed.boxes else None
            spot = self._spot(wanted, drawing, support, centre)
            if spot:
                self._paste(placed, drawing, spot)
        self._placed.append(placed if placed.numbers else None)

    def stand(self, wanted: Wanted, drawing: Drawing, look: Look, left: int, bottom: int) -> bool:
        """Places an object with its lower edge on a row, unless it would hide too much; True if it was placed."""
        image = transformed(sprite(drawing, self._render), look)
        top = bottom - image.height
        if self._canvas.least_visible_after(image, left, top) < _LEFT_BY_NEWCOMERS:
            return False
        placed = _Placed(wanted, [], [], [])
        self._paste(placed, drawing, (image, left, top))
        self._placed.append(placed)
        return True

    def clutter(self, concept: str, size: float) -> None:
        """Draws a distractor, which is not an object, anywhere."""
        drawing = self._choose(self._rng, concept)
        image = transformed(sprite(drawing, self._render), self._look(size, lean=40.0))
        self._canvas.obstruct(image, *self._anywhere(image))

    def objects(self) -> tuple[SceneObject, ...]:
        """All objects that are at least partly visible."""
        return tuple(one for placed in self._placed if placed and (one := self._seen(placed)))

    def _seen(self, placed: _Placed) -> SceneObject | None:
        mask = self._canvas.visible(placed.numbers)
        box = opaque_extent(mask)
        if box is None:
            return None
        return SceneObject(
            category=placed.wanted.category,
            concept=placed.wanted.concept,
            drawings=tuple(placed.drawings),
            sprites=tuple(placed.numbers),
            box=box,
            area=int(mask.sum()),
            visible=self._canvas.visible_fraction(placed.numbers),
            truncated=any(self._is_beyond(box) for box in placed.boxes),
            labelled=placed.wanted.labelled,
            segments=run_lengths(mask) if len(placed.numbers) > 1 else outline(mask),
        )

    def _paste(self, placed: _Placed, drawing: Drawing, spot: Spot) -> None:
        image, left, top = spot
        placed.numbers.append(self._canvas.paste(image, left, top))
        placed.drawings.append(drawing.key)
        placed.boxes.append((left, top, left + image.width, top + image.height))

    def _is_beyond(self, box: Box) -> bool:
        height, width = self._canvas.owner.shape
        return box[0] < 0 or box[1] < 0 or box[2] > width or box[3] > height

    def _spot(
        self,
        wanted: Wanted,
        drawing: Drawing,
        support: _Placed | None,
        centre: tuple[float, float] | None,
    ) -> Spot | None:
        """A sprite and a place for it; None after too many tries."""
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
            if self._canvas.least_visible_after(image, left, top) >= _LEFT_BY_NEWCOMERS:
                return image, left, top
        return None

    def _look(self, size: float, lean: float) -> Look:
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
