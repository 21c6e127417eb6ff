"""What is known about one written scene: all that annotation files are made of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from farther.tools.demo.canvas import Box
from farther.tools.demo.placing import SceneObject
from farther.tools.demo.recipes import shown_by
from farther.tools.demo.scene import Scene

_OUTLINE_ROWS = 24


@dataclass(frozen=True)
class Annotation:
    """One annotated object or group."""

    category: str
    box: Box
    """Pixel edges xmin, ymin, xmax, ymax."""
    area: int
    visible: float
    occluded: bool
    truncated: bool
    is_group: bool
    segments: tuple[int, ...]
    """For one object a polygon x, y, x, y, ...; for a group the run lengths of its mask, column by column."""


@dataclass(frozen=True)
class Record:
    """One scene as the annotators left it, and the truth about ID classes in it."""

    subset: str
    index: int
    width: int
    height: int
    attributes: dict[str, str]
    annotations: tuple[Annotation, ...]
    known: tuple[tuple[str, bool], ...]
    """ID classes (words of `voc` and of `bdd`) that can be seen, and whether an annotation shows each."""


def record(scene: Scene, subset: str, index: int) -> Record:
    """Describe a scene."""
    height, width = scene.owner.shape
    return Record(
        subset=subset,
        index=index,
        width=width,
        height=height,
        attributes=scene.attributes,
        annotations=tuple(_annotation(one, scene.owner) for one in scene.objects if one.annotated),
        known=_known(scene),
    )


def run_lengths(mask: np.ndarray) -> tuple[int, ...]:
    """Lengths of the runs of a mask read column by column, the first run being one of zeros (COCO's RLE)."""
    flat = mask.flatten(order="F")
    changes = np.flatnonzero(flat[1:] != flat[:-1]) + 1
    edges = np.concatenate([[0], changes, [flat.size]])
    lengths = np.diff(edges).tolist()
    return tuple([0, *lengths] if flat[0] else lengths)


def outline(mask: np.ndarray) -> tuple[int, ...]:
    """A polygon x, y, x, y, ... around a mask: down its right edge and up its left edge."""
    rows = np.flatnonzero(mask.any(axis=1))
    chosen = rows[np.unique(np.linspace(0, len(rows) - 1, _OUTLINE_ROWS).astype(int))]
    left = mask[chosen].argmax(axis=1)
    right = mask.shape[1] - mask[chosen, ::-1].argmax(axis=1)
    # The last row's lower edge closes the polygon, so that even a single row has an area.
    ys = np.append(chosen, chosen[-1] + 1)
    left, right = np.append(left, left[-1]), np.append(right, right[-1])
    down = np.stack([right, ys], axis=1)
    up = np.stack([left, ys], axis=1)[::-1]
    return tuple(np.concatenate([down, up]).ravel().tolist())


def _annotation(one: SceneObject, owner: np.ndarray) -> Annotation:
    mask = np.isin(owner, one.sprites)
    return Annotation(
        category=one.category,
        box=one.box,
        area=one.area,
        visible=one.visible,
        occluded=one.occluded,
        truncated=one.truncated,
        is_group=one.is_group,
        segments=run_lengths(mask) if one.is_group else outline(mask),
    )


def _known(scene: Scene) -> tuple[tuple[str, bool], ...]:
    seen: dict[str, bool] = {}
    for one in scene.objects:
        for name in shown_by().get(one.concept, ()):
            seen[name] = seen.get(name, False) or one.annotated
    return tuple(sorted(seen.items()))
