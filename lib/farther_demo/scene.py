"""Composes a scene: background, objects, obstacles in front, and the exact extent of each object.

An object's box is the tight box of its visible pixels (alpha of at least `OPAQUE`, inside the
image, not covered). It is annotated when at least `LEAST_VISIBLE` of its pixels are visible.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field

import numpy as np
from PIL import Image

from farther_demo import backgrounds
from farther_demo.canvas import Canvas, Look, finished
from farther_demo.drawings import Drawing, catalogue
from farther_demo.placing import TRIES, Chooser, Placer, SceneObject
from farther_demo.recipes import (
    CROPS,
    ID_DATASETS,
    UNKNOWN,
    DemoWorld,
    Wanted,
    crop_object,
    id_scene,
    ood_scene,
    shown_by,
)

Rng = np.random.Generator

_STREET_SHAPE = 9 / 16
_ON_FOOT_OR_TWO_WHEELS = frozenset({"pedestrian", "rider", "bicycle", "motorcycle"})
_ABOVE = frozenset({"traffic light", "traffic sign"})


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
    """Annotations of a scene, and the ID classes that are really visible in it."""

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
        wanted = id_scene(rng, dataset)
    else:
        wanted = ood_scene(rng, dataset, world.missing_labels if dataset == "openimages" else 0.0)
    return _varied_scene(rng, world, wanted, choose)


def _chooser(world: DemoWorld, dataset: str, subset: str) -> Chooser:
    """Random choice of a drawing of a concept; held-out ones only in test subsets and OOD sources."""
    share = world.held_out if subset == "test" else 0.0

    def choose(rng: Rng, concept: str) -> Drawing:
        pool = catalogue()[concept]
        if subset == UNKNOWN or dataset not in (*ID_DATASETS, CROPS):
            drawings = pool.train + pool.test
        else:
            drawings = pool.test if rng.random() < share and pool.test else pool.train
        return drawings[int(rng.integers(len(drawings)))]

    return choose


def _varied_scene(rng: Rng, world: DemoWorld, wanted: list[Wanted], choose: Chooser) -> Scene:
    short = round(world.size * rng.uniform(0.72, 1.0))
    size = (world.size, short) if rng.random() < 0.7 else (short, world.size)
    canvas = Canvas(backgrounds.varied(rng, size))
    placer = Placer(rng, world.size, canvas, choose)
    for _ in range(int(rng.integers(0, 3))):
        placer.clutter("clutter", world.size * rng.uniform(0.06, 0.16))
    for one in wanted:
        placer.place(one)
    if rng.random() < 0.3:
        _obstruct(rng, canvas, world.size * 0.2)
    return Scene(finished(canvas.image, rng), placer.objects(), canvas.owner)


def _crop(rng: Rng, world: DemoWorld, wanted: Wanted, choose: Chooser) -> Scene:
    """A square image that one object nearly fills."""
    canvas = Canvas(backgrounds.varied(rng, (world.crop_size, world.crop_size)))
    placer = Placer(rng, world.crop_size, canvas, choose)
    if rng.random() < 0.5:
        placer.clutter("clutter", world.crop_size * rng.uniform(0.15, 0.35))
    placer.place(wanted)
    if rng.random() < 0.2:
        _obstruct(rng, canvas, world.crop_size * 0.25)
    return Scene(finished(canvas.image, rng), placer.objects(), canvas.owner)


def _obstruct(rng: Rng, canvas: Canvas, size: float) -> None:
    shape = backgrounds.obstacle(rng, size)
    left = int(rng.integers(0, canvas.owner.shape[1]) - shape.width // 2)
    top = int(rng.integers(0, canvas.owner.shape[0]) - shape.height // 2)
    canvas.obstruct(shape, left, top)


def _street_scene(rng: Rng, world: DemoWorld, choose: Chooser) -> Scene:
    """A street; far objects first, so that near ones are in front of them."""
    width, height = world.size, round(world.size * _STREET_SHAPE)
    light = str(rng.choice(["daytime", "dawn/dusk", "night"], p=[0.6, 0.15, 0.25]))
    weather = str(
        rng.choice(["clear", "overcast", "rainy", "snowy", "foggy"], p=[0.55, 0.2, 0.1, 0.08, 0.07])
    )
    horizon = int(height * rng.uniform(0.38, 0.5))
    canvas = Canvas(backgrounds.street(rng, (width, height), horizon, light))
    placer = Placer(rng, world.size, canvas, choose)
    wanted = id_scene(rng, "bdd")
    for one, near in zip(wanted, np.sort(rng.uniform(0, 1, len(wanted))).tolist(), strict=True):
        drawing = choose(rng, one.concept)
        for _ in range(TRIES):
            look, bottom = _street_look(rng, one.category, near, (width, height), horizon, light)
            if placer.stand(one, drawing, look, int(rng.uniform(-0.1, 0.95) * width), bottom):
                break
    picture = backgrounds.weather(rng, finished(canvas.image, rng), weather)
    attributes = {"weather": weather, "scene": "city street", "timeofday": light}
    return Scene(picture, placer.objects(), canvas.owner, attributes)


def _street_look(
    rng: Rng, category: str, near: float, size: tuple[int, int], horizon: int, light: str
) -> tuple[Look, int]:
    """Appearance of an object at a distance, and the row of its lower edge."""
    width, height = size
    ground = horizon + 4 + (height - horizon) * near * 0.95
    if category in _ABOVE:
        longest, bottom = height * rng.uniform(0.16, 0.36), horizon * rng.uniform(0.55, 1.25)
    elif category in _ON_FOOT_OR_TWO_WHEELS:
        longest, bottom = height * (0.22 + 0.45 * near), ground
    else:
        longest, bottom = width * (0.15 + 0.35 * near), ground
    dim = 0.6 if light == "night" and category not in _ABOVE else 1.0
    look = Look(
        size=float(longest * rng.uniform(0.85, 1.15)),
        degrees=float(rng.normal(0, 2.5)),
        mirrored=bool(rng.random() < 0.5) and category not in _ABOVE,
        stretch=float(rng.uniform(0.9, 1.1)),
        hue=float(rng.normal(0, 9)),
        saturation=float(rng.uniform(0.6, 1.1)),
        brightness=float(rng.uniform(0.75, 1.05) * dim),
    )
    return look, round(bottom)


def record(scene: Scene, subset: str, index: int) -> Record:
    """Annotations of a scene."""
    height, width = scene.owner.shape
    seen: dict[str, bool] = {}
    for one in scene.objects:
        for name in shown_by().get(one.concept, ()):
            seen[name] = seen.get(name, False) or one.annotated
    return Record(
        subset=subset,
        index=index,
        width=width,
        height=height,
        attributes=scene.attributes,
        annotations=tuple(one for one in scene.objects if one.annotated),
        known=tuple(sorted(seen.items())),
    )
