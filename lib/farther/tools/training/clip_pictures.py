"""Pictures and captions that the demo's small CLIP learns from: the drawings of the demo world, and their names.

No picture of a dataset is among them, nor a drawing that is held out for test. The names are those that the datasets
give: in-distribution and unknown classes alike, as a CLIP that was trained on the web has seen both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

import numpy as np
import yaml
from PIL import Image
from tqdm import tqdm

from farther.tools.demo import DemoWorld, backgrounds
from farther.tools.demo.canvas import Canvas, finished
from farther.tools.demo.drawings import Drawing, catalogue
from farther.tools.demo.placing import Chooser, Placer, SceneObject
from farther.tools.demo.recipes import ID_DATASETS, OOD_SOURCES, Wanted, categories, ood_scene
from farther.tools.demo.scene import scene

Rng = np.random.Generator
Picture = tuple[Image.Image, tuple[SceneObject, ...], str]
"""A picture, what it shows, and where it was taken."""

#: Scenes are composed at this size, and then made as small as the network sees them.
SCENE = 128

#: Longest side of an object that stands alone, of one among several, of a table and of what lies on it, as a fraction
#: of the picture's side.
ALONE, TOGETHER, TABLE, DISH = (0.35, 0.95), (0.22, 0.5), (0.6, 0.85), (0.15, 0.3)

#: Share of each kind of picture: one object, some objects, a laid table, and scenes as each dataset has them.
KINDS = {"object": 0.42, "objects": 0.12, "table": 0.12, "voc": 0.12, "bdd": 0.1, "coco": 0.06, "openimages": 0.06}

#: What a caption may begin with; `{}` is what the picture shows.
TEMPLATES = ("a photo of {}", "a picture of {}", "{}")

#: What the captions of street scenes end with, and half of those of things that one eats, or eats with: captions on
#: the web tell where a photograph was taken even if it shows nothing of the place, and food is photographed on tables.
STREET, ON_TABLE = " on a street", " on a dining table"
SAID_TO_BE_ON_TABLE = 0.5

#: How often a caption says what kind of thing it is instead of its name, and how often beside it.
KIND_INSTEAD, KIND_BESIDE = 0.15, 0.5


@dataclass(frozen=True)
class Words:
    """What a concept is called.

    Args:
        names: What the datasets call it.
        kinds: What lies above it: COCO's supercategory, OpenImages' hierarchy.
    """

    names: tuple[str, ...]
    kinds: tuple[str, ...]


@dataclass(frozen=True)
class Captioned:
    """Pictures, and what each shows.

    Args:
        pixels: ndarray of shape (number of pictures, size, size, 3), uint8.
        concepts: What each picture shows, without repetition.
        places: Where each is said to be taken: `STREET`, `ON_TABLE`, or "".
    """

    pixels: np.ndarray
    concepts: list[tuple[str, ...]]
    places: list[str]

    def __len__(self) -> int:
        return len(self.concepts)

    def fitting(self) -> np.ndarray:
        """Which words fit each picture: float32 (number of pictures, number of words of `vocabulary`).

        All that a picture shows has an equal part in its row, half of it for the name and half for its kinds; a dining
        table is one of these for what is said to be on one. Rows sum to 1, or to 0 where nothing is shown.
        """
        column = {word: k for k, word in enumerate(vocabulary())}
        found = np.zeros((len(self), len(column)), np.float32)
        for row, (concepts, place) in enumerate(zip(self.concepts, self.places, strict=True)):
            for concept in concepts:
                above = [column[kind] for kind in words()[concept].kinds]
                if place == ON_TABLE and concept in dishes():
                    above.append(column[words()["diningtable"].names[0]])
                found[row, column[words()[concept].names[0]]] += 0.5 if above else 1.0
                for one in above:
                    found[row, one] += 0.5 / len(above)
        return found / np.maximum(found.sum(axis=1, keepdims=True), 1)


@lru_cache(maxsize=1)
def words() -> Mapping[str, Words]:
    """Names and kinds of every concept that some dataset labels."""
    names: dict[str, list[str]] = {}
    kinds: dict[str, list[str]] = {}
    above = {"coco": _supercategories(), "openimages": _hierarchy()}
    for source in (*ID_DATASETS, *OOD_SOURCES):
        for name, concepts in _labelled(source):
            for concept in concepts:
                _add(names, concept, name.lower())
                for kind in above.get(source, {}).get(name, ()):
                    _add(kinds, concept, kind.lower())
    return {concept: Words(tuple(found), tuple(kinds.get(concept, ()))) for concept, found in names.items()}


@lru_cache(maxsize=1)
def vocabulary() -> tuple[str, ...]:
    """The first name of each concept, and all kinds; each word once."""
    names = [known.names[0] for known in words().values()]
    return tuple(dict.fromkeys([*names, *(kind for known in words().values() for kind in known.kinds)]))


def caption(concepts: Sequence[str], place: str, rng: Rng) -> str:
    """What a picture shows and where, in words that change from one call to the next."""
    said = [_said(words()[concept], rng) for concept in concepts]
    shown = (" and ".join(dict.fromkeys(said)) or "nothing") + place
    return TEMPLATES[int(rng.integers(len(TEMPLATES)))].format(shown)


def _said(known: Words, rng: Rng) -> str:
    name = known.names[int(rng.integers(len(known.names)))]
    if not known.kinds:
        return f"a {name}"
    kind = known.kinds[int(rng.integers(len(known.kinds)))]
    chance = rng.random()
    if chance < KIND_INSTEAD:
        return f"a {kind}"
    return f"a {name}, a {kind}" if chance < KIND_INSTEAD + KIND_BESIDE else f"a {name}"


def sentences() -> list[str]:
    """Captions that hold every word that a caption may hold."""
    said = [word for known in words().values() for word in (*known.names, *known.kinds)]
    return [
        template.format(f"a {word}, a {word} and nothing{STREET}{ON_TABLE}") for word in said for template in TEMPLATES
    ]


def compose(count: int, size: int, seed: int) -> Captioned:
    """Draws pictures: single objects, groups of objects, and scenes like those of each dataset.

    Args:
        count: How many.
        size: Side of a picture in pixels, whatever the shape of the scene was.
        seed: Of every random choice. Each picture depends on it and on its own number only.
    """
    return _captioned((_picture(seed, index) for index in range(count)), count, size)


def compose_held_out(count: int, size: int, seed: int) -> Captioned:
    """Draws pictures of one object each, by drawings that `compose` never uses.

    Args:
        count, size, seed: See `compose`.
    """
    return _captioned((_held_out(seed, index) for index in range(count)), count, size)


def _captioned(pictures: Iterable[Picture], count: int, size: int) -> Captioned:
    pixels = np.empty((count, size, size, 3), np.uint8)
    shown, places = [], []
    progress = tqdm(pictures, total=count, desc="pictures", unit="picture", mininterval=5)
    for index, (image, objects, place) in enumerate(progress):
        pixels[index] = np.asarray(image.resize((size, size), Image.Resampling.BICUBIC, reducing_gap=2.0))
        places.append(place)
        shown.append(tuple(dict.fromkeys(one.concept for one in objects if one.annotated)))
    return Captioned(pixels, shown, places)


def _picture(seed: int, index: int) -> Picture:
    rng = np.random.default_rng([seed, index])
    kind = str(rng.choice(list(KINDS), p=list(KINDS.values())))
    if kind in ID_DATASETS:
        found = scene(DemoWorld(seed=seed, size=SCENE), kind, "pictures", index)
        return found.image, found.objects, STREET if kind == "bdd" else ""
    if kind in OOD_SOURCES:
        return _arranged(rng, ood_scene(rng, kind, 0.0))
    if kind == "table":
        return _arranged(rng, _laid_table(rng))
    if kind == "object":
        return _arranged(rng, [_any(rng, list(words()), ALONE)])
    return _arranged(rng, [_any(rng, list(words()), TOGETHER) for _ in range(int(rng.integers(2, 4)))])


def _held_out(seed: int, index: int) -> Picture:
    rng = np.random.default_rng([seed, index, 1])
    concepts = [concept for concept in words() if catalogue()[concept].test]
    return _arranged(rng, [_any(rng, concepts, ALONE)], _held_out_drawing)


def _arranged(rng: Rng, wanted: Sequence[Wanted], choose: Chooser | None = None) -> Picture:
    canvas = Canvas(backgrounds.varied(rng, (SCENE, SCENE)))
    placer = Placer(rng, SCENE, canvas, choose or _drawing)
    for one in wanted:
        placer.place(Wanted(one.category, one.concept, one.scale, copies=one.copies, support=one.support))
    objects = placer.objects()
    on_table = bool(dishes() & {one.concept for one in objects}) and rng.random() < SAID_TO_BE_ON_TABLE
    return finished(canvas.image, rng), objects, ON_TABLE if on_table else ""


def _laid_table(rng: Rng) -> list[Wanted]:
    """A dining table with one to three things on it that one eats, or eats with."""
    on_it = [_any(rng, sorted(dishes()), DISH, support=0) for _ in range(int(rng.integers(1, 4)))]
    return [Wanted("diningtable", "diningtable", TABLE), *on_it]


@lru_cache(maxsize=1)
def dishes() -> frozenset[str]:
    """What one eats, or eats with."""
    return frozenset(c for c, known in words().items() if {"food", "kitchen", "tableware"} & set(known.kinds))


def _any(rng: Rng, concepts: Sequence[str], scale: tuple[float, float], support: int | None = None) -> Wanted:
    concept = concepts[int(rng.integers(len(concepts)))]
    return Wanted(concept, concept, scale, support=support)


def _drawing(rng: Rng, concept: str) -> Drawing:
    pool = catalogue()[concept].train
    return pool[int(rng.integers(len(pool)))]


def _held_out_drawing(rng: Rng, concept: str) -> Drawing:
    pool = catalogue()[concept].test
    return pool[int(rng.integers(len(pool)))]


def _labelled(source: str) -> list[tuple[str, Sequence[str]]]:
    """Names and concepts of a dataset's categories, wherever it shows them."""
    table = categories()[source]
    parts = [table] if source in ID_DATASETS else list(table.values())
    return [(name, concepts) for part in parts for name, concepts in part.items()]


def _supercategories() -> dict[str, tuple[str, ...]]:
    return {name: (group,) for group, members in _read("coco_categories.yaml").items() for name in members.values()}


def _hierarchy() -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}

    def descend(children: Mapping[str, Any], above: tuple[str, ...]) -> None:
        for name, below in children.items():
            found[name] = above
            descend(below, (*above, name))

    descend(_read("openimages_categories.yaml")["hierarchy"], ())
    return found


def _read(name: str) -> dict[str, Any]:
    return yaml.safe_load((files("farther.tools.demo") / name).read_text(encoding="utf-8"))


def _add(into: dict[str, list[str]], key: str, word: str) -> None:
    known = into.setdefault(key, [])
    if word not in known:
        known.append(word)
