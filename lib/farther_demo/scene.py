"""Composes a scene: background, objects, obstacles in front, and the exact extent of each object.

An object's box is the tight box of its visible pixels (alpha of at least `OPAQUE`, inside the
image, not covered). It is annotated when at least `LEAST_VISIBLE` of its pixels are visible.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from PIL import Image

from farther_demo import backgrounds
from farther_demo.canvas import Canvas, Look, with_camera_effects
from farther_demo.drawings import Drawing, catalogue
from farther_demo.placing import TRIES, Chooser, Placer, SceneObject
from farther_demo.recipes import (
    CROPS,
    ID_DATASETS,
    UNKNOWN,
    DemoWorld,
    PlannedObject,
    crop_object,
    id_scene,
    ood_scene,
    shown_by,
)

Rng = np.random.Generator

_STREET_SHAPE = 9 / 16
_ON_FOOT_OR_TWO_WHEELS = frozenset({"pedestrian", "rider", "bicycle", "motorcycle"})
_ABOVE = frozenset({"traffic light", "traffic sign"})

#: Probability of each light and of each weather in a street.
_LIGHTS = {"daytime": 0.6, "dawn/dusk": 0.15, "night": 0.25}
_WEATHERS = {"clear": 0.55, "overcast": 0.2, "rainy": 0.1, "snowy": 0.08, "foggy": 0.07}


@dataclass(frozen=True)
class Scene:
    """A finished image, its objects, and the owner of each pixel."""

    image: Image.Image
    objects: tuple[SceneObject, ...]
    owner: np.ndarray
    """Number of the sprite that owns each pixel, int16 (height, width); -1 for none."""
    attributes: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Record:
    """Annotations of a scene, and the ID classes that are visible in it, annotated or not."""

    subset: str
    index: int
    width: int
    height: int
    attributes: dict[str, str]
    annotations: tuple[SceneObject, ...]
    known: tuple[tuple[str, bool], ...]
    """Visible ID classes (by the names of `voc` and of `bdd`), and whether each is annotated."""


def scene(world: DemoWorld, dataset: str, subset: str, index: int) -> Scene:
    """Scene `index` of a subset; it depends on these arguments only."""
    labels = [zlib.crc32(word.encode()) for word in (dataset, subset)]
    rng = np.random.default_rng([world.seed, *labels, index])
    choose = _chooser(world, dataset, subset)
    if dataset == CROPS:
        return _crop(rng, world, crop_object(rng, subset, index), choose)
    if dataset == "bdd":
        return _street_scene(rng, world, choose)
    if dataset in ID_DATASETS:
        objects = id_scene(rng, dataset)
    else:
        missing_labels = world.missing_labels if dataset == "openimages" else 0.0
        objects = ood_scene(rng, dataset, missing_labels)
    return _varied_scene(rng, world, objects, choose)


def _chooser(world: DemoWorld, dataset: str, subset: str) -> Chooser:
    """Random choice of a drawing of a concept.

    Held-out drawings occur in validation and test subsets alike, so that what is chosen on one
    holds on the other, and in OOD sources; never in training images.
    """
    held_out_share = world.held_out if subset in ("val", "test") else 0.0

    def choose(rng: Rng, concept: str) -> Drawing:
        pool = catalogue()[concept]
        if subset == UNKNOWN or dataset not in (*ID_DATASETS, CROPS):
            drawings = pool.train + pool.test
        elif rng.random() < held_out_share and pool.test:
            drawings = pool.test
        else:
            drawings = pool.train
        return drawings[int(rng.integers(len(drawings)))]

    return choose


def _varied_scene(
    rng: Rng, world: DemoWorld, objects: list[PlannedObject], choose: Chooser
) -> Scene:
    """A scene in front of any background."""
    short = round(world.size * rng.uniform(0.72, 1.0))
    size = (world.size, short) if rng.random() < 0.7 else (short, world.size)
    canvas = Canvas(backgrounds.varied(rng, size))
    placer = Placer(rng, world.size, canvas, choose)
    for _ in range(int(rng.integers(0, 3))):
        placer.clutter("clutter", world.size * rng.uniform(0.06, 0.16))
    for wanted in objects:
        placer.place(wanted)
    if rng.random() < 0.3:
        _obstruct(rng, canvas, world.size * 0.2)
    return Scene(with_camera_effects(canvas.image, rng), placer.objects(), canvas.owner)


def _crop(rng: Rng, world: DemoWorld, wanted: PlannedObject, choose: Chooser) -> Scene:
    """A square image that one object nearly fills."""
    canvas = Canvas(backgrounds.varied(rng, (world.crop_size, world.crop_size)))
    placer = Placer(rng, world.crop_size, canvas, choose)
    if rng.random() < 0.5:
        placer.clutter("clutter", world.crop_size * rng.uniform(0.15, 0.35))
    placer.place(wanted)
    if rng.random() < 0.2:
        _obstruct(rng, canvas, world.crop_size * 0.25)
    return Scene(with_camera_effects(canvas.image, rng), placer.objects(), canvas.owner)


def _obstruct(rng: Rng, canvas: Canvas, size: float) -> None:
    """Puts an obstacle anywhere in front."""
    shape = backgrounds.obstacle(rng, size)
    left = int(rng.integers(0, canvas.owner.shape[1]) - shape.width // 2)
    top = int(rng.integers(0, canvas.owner.shape[0]) - shape.height // 2)
    canvas.obstruct(shape, left, top)


def _street_scene(rng: Rng, world: DemoWorld, choose: Chooser) -> Scene:
    """A street; far objects first, so that near ones are in front of them."""
    width = world.size
    height = round(world.size * _STREET_SHAPE)
    light = str(rng.choice(list(_LIGHTS), p=list(_LIGHTS.values())))
    weather = str(rng.choice(list(_WEATHERS), p=list(_WEATHERS.values())))
    horizon = int(height * rng.uniform(0.38, 0.5))
    canvas = Canvas(backgrounds.street(rng, (width, height), horizon, light))
    placer = Placer(rng, world.size, canvas, choose)

    objects = id_scene(rng, "bdd")
    nearness = np.sort(rng.uniform(0, 1, len(objects))).tolist()
    for wanted, near in zip(objects, nearness, strict=True):
        drawing = choose(rng, wanted.concept)
        for _ in range(TRIES):
            standpoint = _standpoint(rng, wanted.category, near, (width, height), horizon)
            look = _street_look(rng, wanted.category, standpoint.side, light)
            left = int(rng.uniform(-0.1, 0.95) * width)
            if placer.stand(wanted, drawing, look, left, round(standpoint.bottom)):
                break
    picture = backgrounds.weather(rng, with_camera_effects(canvas.image, rng), weather)
    attributes = {"weather": weather, "scene": "city street", "timeofday": light}
    return Scene(picture, placer.objects(), canvas.owner, attributes)


class _Standpoint(NamedTuple):
    """Row of an object's lower edge, and its longest side in pixels."""

    bottom: float
    side: float


def _standpoint(
    rng: Rng, category: str, near: float, size: tuple[int, int], horizon: int
) -> _Standpoint:
    """Place and size of an object in a street.

    Args:
        rng: Source of random numbers.
        category: The object's class.
        near: Nearness, from 0 at the horizon to 1.
        size: Width and height of the scene.
        horizon: Row of the horizon.
    """
    width, height = size
    if category in _ABOVE:
        side = height * rng.uniform(0.16, 0.36)
        return _Standpoint(horizon * rng.uniform(0.55, 1.25), side)
    ground = horizon + 4 + (height - horizon) * near * 0.95
    if category in _ON_FOOT_OR_TWO_WHEELS:
        return _Standpoint(ground, height * (0.22 + 0.45 * near))
    return _Standpoint(ground, width * (0.15 + 0.35 * near))


def _street_look(rng: Rng, category: str, side: float, light: str) -> Look:
    """Appearance of an object in a street.

    Args:
        rng: Source of random numbers.
        category: The object's class.
        side: Its longest side in pixels.
        light: Light of the scene.
    """
    dim = 0.6 if light == "night" and category not in _ABOVE else 1.0
    return Look(
        size=float(side * rng.uniform(0.85, 1.15)),
        degrees=float(rng.normal(0, 2.5)),
        mirrored=bool(rng.random() < 0.5) and category not in _ABOVE,
        stretch=float(rng.uniform(0.9, 1.1)),
        hue=float(rng.normal(0, 9)),
        saturation=float(rng.uniform(0.6, 1.1)),
        brightness=float(rng.uniform(0.75, 1.05) * dim),
    )


def record(scene: Scene, subset: str, index: int) -> Record:
    """Annotations of a scene."""
    height, width = scene.owner.shape
    is_annotated_by_class: dict[str, bool] = {}
    for visible_object in scene.objects:
        for name in shown_by().get(visible_object.concept, ()):
            is_annotated = is_annotated_by_class.get(name, False)
            is_annotated_by_class[name] = is_annotated or visible_object.annotated
    annotated = [visible_object for visible_object in scene.objects if visible_object.annotated]
    return Record(
        subset=subset,
        index=index,
        width=width,
        height=height,
        attributes=scene.attributes,
        annotations=tuple(annotated),
        known=tuple(sorted(is_annotated_by_class.items())),
    )
