"""Training images and captions of the demo's CLIP: drawings of the demo world and their names.

They contain no image of a dataset and no drawing that is held out for test. The names are those of
the datasets, of in-distribution and unknown classes alike, as a CLIP trained on the web has seen
both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from PIL import Image
from tqdm import tqdm

from farther_demo import DemoWorld, backgrounds
from farther_demo.canvas import Canvas, finished
from farther_demo.drawings import Drawing, catalogue, demo_table
from farther_demo.placing import Chooser, Placer, SceneObject
from farther_demo.recipes import ID_DATASETS, OOD_SOURCES, Wanted, categories, ood_scene
from farther_demo.scene import scene

Rng = np.random.Generator
#: An image, its objects, and its place.
Picture = tuple[Image.Image, tuple[SceneObject, ...], str]

#: Size at which scenes are composed, before they are reduced to the network's input size.
SCENE = 128

#: Longest side of a single object, one of several, a table and a dish on it, as a fraction of the
#: image's side.
ALONE = (0.35, 0.95)
TOGETHER = (0.22, 0.5)
TABLE = (0.6, 0.85)
DISH = (0.15, 0.3)

#: Fraction of each kind of image: one object, several objects, a laid table, and scenes like those
#: of each dataset.
KINDS = {
    "object": 0.42,
    "objects": 0.12,
    "table": 0.12,
    "voc": 0.12,
    "bdd": 0.1,
    "coco": 0.06,
    "openimages": 0.06,
}

#: Templates of captions; `{}` is replaced by the objects.
TEMPLATES = ("a photo of {}", "a picture of {}", "{}")

#: Endings of the captions of street scenes, and of half of the captions of food and tableware:
#: captions on the web often name the place of a photograph even if it is not visible, and food is
#: photographed on tables.
STREET = " on a street"
ON_TABLE = " on a dining table"
SAID_TO_BE_ON_TABLE = 0.5

#: Probability that a caption contains the kind of an object instead of its name, and in addition to
#: it.
KIND_INSTEAD = 0.15
KIND_BESIDE = 0.5


@dataclass(frozen=True)
class Words:
    """Names of a concept in the datasets, and its hypernyms.

    Hypernyms are COCO's supercategory and those of OpenImages' hierarchy.
    """

    names: tuple[str, ...]
    kinds: tuple[str, ...]


@dataclass(frozen=True)
class Captioned:
    """Images and their objects.

    Args:
        pixels: ndarray of shape (number of images, size, size, 3), uint8.
        concepts: Distinct concepts of each image.
        places: Place of each image in its caption: `STREET`, `ON_TABLE`, or "".
    """

    pixels: np.ndarray
    concepts: list[tuple[str, ...]]
    places: list[str]

    def __len__(self) -> int:
        return len(self.concepts)

    def fitting(self) -> np.ndarray:
        """Weights of the words that fit each image, float32 (images, words of `vocabulary`).

        All concepts of an image have equal weight, half of it for the name and half for its kinds;
        a dining table is a kind of the dishes that are placed on one. Rows sum to 1, or to 0
        without objects.
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
    """Names and kinds of each concept that a dataset labels."""
    names: dict[str, dict[str, None]] = {}  # dicts keep the order and drop repetitions
    kinds: dict[str, dict[str, None]] = {}
    groups = demo_table("coco_categories.yaml").items()
    supercategories: dict[str, tuple[str, ...]] = {
        name: (group,) for group, members in groups for name in members.values()
    }
    above = {"coco": supercategories, "openimages": _hierarchy()}
    for source in (*ID_DATASETS, *OOD_SOURCES):
        for name, concepts in _labelled(source):
            for concept in concepts:
                names.setdefault(concept, {})[name.lower()] = None
                for kind in above.get(source, {}).get(name, ()):
                    kinds.setdefault(concept, {})[kind.lower()] = None
    return {
        concept: Words(tuple(found), tuple(kinds.get(concept, ())))
        for concept, found in names.items()
    }


@lru_cache(maxsize=1)
def vocabulary() -> tuple[str, ...]:
    """The first name of each concept, and all kinds; each word once."""
    names = [known.names[0] for known in words().values()]
    return tuple(
        dict.fromkeys([*names, *(kind for known in words().values() for kind in known.kinds)])
    )


def caption(concepts: Sequence[str], place: str, rng: Rng) -> str:
    """Random caption of an image with these concepts and this place."""
    phrases = [_phrase(words()[concept], rng) for concept in concepts]
    shown = (" and ".join(dict.fromkeys(phrases)) or "nothing") + place
    return TEMPLATES[int(rng.integers(len(TEMPLATES)))].format(shown)


def _phrase(known: Words, rng: Rng) -> str:
    """Random name of a concept, its kind, or both."""
    name = known.names[int(rng.integers(len(known.names)))]
    if not known.kinds:
        return f"a {name}"
    kind = known.kinds[int(rng.integers(len(known.kinds)))]
    chance = rng.random()
    if chance < KIND_INSTEAD:
        return f"a {kind}"
    return f"a {name}, a {kind}" if chance < KIND_INSTEAD + KIND_BESIDE else f"a {name}"


def sentences() -> list[str]:
    """Captions that contain all words of possible captions."""
    every = [word for known in words().values() for word in (*known.names, *known.kinds)]
    return [
        template.format(f"a {word}, a {word} and nothing{STREET}{ON_TABLE}")
        for word in every
        for template in TEMPLATES
    ]


def compose(count: int, size: int, seed: int) -> Captioned:
    """Draws square images of single and several objects, and scenes like those of each dataset.

    Args:
        size: Side of the images in pixels.
    """
    return _captioned((_picture(seed, index) for index in range(count)), count, size)


def compose_held_out(count: int, size: int, seed: int) -> Captioned:
    """Draws images of one object each with held-out drawings, which `compose` never uses.

    Arguments as there.
    """
    return _captioned((_held_out(seed, index) for index in range(count)), count, size)


def _captioned(pictures: Iterable[Picture], count: int, size: int) -> Captioned:
    pixels = np.empty((count, size, size, 3), np.uint8)
    shown = []
    places = []
    progress = tqdm(pictures, total=count, desc="pictures", unit="picture", mininterval=5)
    for index, (image, objects, place) in enumerate(progress):
        pixels[index] = np.asarray(
            image.resize((size, size), Image.Resampling.BICUBIC, reducing_gap=2.0)
        )
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
    return _arranged(
        rng, [_any(rng, list(words()), TOGETHER) for _ in range(int(rng.integers(2, 4)))]
    )


def _held_out(seed: int, index: int) -> Picture:
    rng = np.random.default_rng([seed, index, 1])
    concepts = [concept for concept in words() if catalogue()[concept].test]
    return _arranged(rng, [_any(rng, concepts, ALONE)], _held_out_drawing)


def _arranged(rng: Rng, wanted: Sequence[Wanted], choose: Chooser | None = None) -> Picture:
    canvas = Canvas(backgrounds.varied(rng, (SCENE, SCENE)))
    placer = Placer(rng, SCENE, canvas, choose or _drawing)
    for one in wanted:
        placer.place(
            Wanted(one.category, one.concept, one.scale, copies=one.copies, support=one.support)
        )
    objects = placer.objects()
    on_table = (
        bool(dishes() & {one.concept for one in objects}) and rng.random() < SAID_TO_BE_ON_TABLE
    )
    return finished(canvas.image, rng), objects, ON_TABLE if on_table else ""


def _laid_table(rng: Rng) -> list[Wanted]:
    """A dining table with one to three dishes."""
    on_it = [_any(rng, sorted(dishes()), DISH, support=0) for _ in range(int(rng.integers(1, 4)))]
    return [Wanted("diningtable", "diningtable", TABLE), *on_it]


@lru_cache(maxsize=1)
def dishes() -> frozenset[str]:
    """Concepts that are food or tableware."""
    return frozenset(
        c for c, known in words().items() if {"food", "kitchen", "tableware"} & set(known.kinds)
    )


def _any(
    rng: Rng, concepts: Sequence[str], scale: tuple[float, float], support: int | None = None
) -> Wanted:
    concept = concepts[int(rng.integers(len(concepts)))]
    return Wanted(concept, concept, scale, support=support)


def _drawing(rng: Rng, concept: str) -> Drawing:
    pool = catalogue()[concept].train
    return pool[int(rng.integers(len(pool)))]


def _held_out_drawing(rng: Rng, concept: str) -> Drawing:
    pool = catalogue()[concept].test
    return pool[int(rng.integers(len(pool)))]


def _labelled(source: str) -> list[tuple[str, Sequence[str]]]:
    """Names and concepts of all categories of a dataset."""
    table = categories()[source]
    parts = [table] if source in ID_DATASETS else list(table.values())
    return [(name, concepts) for part in parts for name, concepts in part.items()]


def _hierarchy() -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}

    def descend(children: Mapping[str, Any], above: tuple[str, ...]) -> None:
        for name, below in children.items():
            found[name] = above
            descend(below, (*above, name))

    descend(demo_table("openimages_categories.yaml")["hierarchy"], ())
    return found
