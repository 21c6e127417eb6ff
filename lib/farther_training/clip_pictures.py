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
from farther_demo.canvas import Canvas, with_camera_effects
from farther_demo.drawings import Drawing, catalogue, demo_table
from farther_demo.placing import Chooser, Placer, SceneObject
from farther_demo.recipes import ID_DATASETS, OOD_SOURCES, PlannedObject, categories, ood_scene
from farther_demo.scene import scene

Rng = np.random.Generator
#: An image, its objects, and its place.
Picture = tuple[Image.Image, tuple[SceneObject, ...], str]

#: Size at which scenes are composed, before they are reduced to the network's input size.
SCENE = 128

#: Longest side of a single object, one of several, a table and a dish on it, as a fraction of the
#: image's side.
SIZES_OF_SINGLE = (0.35, 0.95)
SIZES_OF_SEVERAL = (0.22, 0.5)
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
        column_by_word = {word: column for column, word in enumerate(vocabulary())}
        weights = np.zeros((len(self), len(column_by_word)), np.float32)
        for row, (concepts, place) in enumerate(zip(self.concepts, self.places, strict=True)):
            for concept in concepts:
                name = words()[concept].names[0]
                kinds = list(words()[concept].kinds)
                if place == ON_TABLE and concept in dishes():
                    kinds.append(words()["diningtable"].names[0])
                if not kinds:
                    weights[row, column_by_word[name]] += 1.0
                    continue
                weights[row, column_by_word[name]] += 0.5
                for kind in kinds:
                    weights[row, column_by_word[kind]] += 0.5 / len(kinds)
        return weights / np.maximum(weights.sum(axis=1, keepdims=True), 1)


@lru_cache(maxsize=1)
def words() -> Mapping[str, Words]:
    """Names and kinds of each concept that a dataset labels."""
    # Dicts keep the order and drop repetitions.
    names_by_concept: dict[str, dict[str, None]] = {}
    kinds_by_concept: dict[str, dict[str, None]] = {}
    hypernyms_by_source = {"coco": _supercategories(), "openimages": _hierarchy()}
    for source in (*ID_DATASETS, *OOD_SOURCES):
        hypernyms = hypernyms_by_source.get(source, {})
        for name, concepts in _labelled(source):
            for concept in concepts:
                names_by_concept.setdefault(concept, {})[name.lower()] = None
                for kind in hypernyms.get(name, ()):
                    kinds_by_concept.setdefault(concept, {})[kind.lower()] = None

    words_by_concept = {}
    for concept, names in names_by_concept.items():
        kinds = kinds_by_concept.get(concept, {})
        words_by_concept[concept] = Words(tuple(names), tuple(kinds))
    return words_by_concept


@lru_cache(maxsize=1)
def vocabulary() -> tuple[str, ...]:
    """The first name of each concept, and all kinds; each word once."""
    first_names = [concept.names[0] for concept in words().values()]
    unique_words = dict.fromkeys(first_names)
    for concept in words().values():
        unique_words.update(dict.fromkeys(concept.kinds))
    return tuple(unique_words)


def caption(concepts: Sequence[str], place: str, rng: Rng) -> str:
    """Random caption of an image with these concepts and this place."""
    phrases = [_phrase(words()[concept], rng) for concept in concepts]
    objects = " and ".join(dict.fromkeys(phrases)) or "nothing"
    template = TEMPLATES[int(rng.integers(len(TEMPLATES)))]
    return template.format(objects + place)


def _phrase(concept: Words, rng: Rng) -> str:
    """Random name of a concept, its kind, or both."""
    name = concept.names[int(rng.integers(len(concept.names)))]
    if not concept.kinds:
        return f"a {name}"
    kind = concept.kinds[int(rng.integers(len(concept.kinds)))]
    random_number = rng.random()
    if random_number < KIND_INSTEAD:
        return f"a {kind}"
    if random_number < KIND_INSTEAD + KIND_BESIDE:
        return f"a {name}, a {kind}"
    return f"a {name}"


def sentences() -> list[str]:
    """Captions that contain all words of possible captions."""
    captions = []
    for concept in words().values():
        for word in (*concept.names, *concept.kinds):
            phrase = f"a {word}, a {word} and nothing{STREET}{ON_TABLE}"
            captions += [template.format(phrase) for template in TEMPLATES]
    return captions


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
    """Pictures, reduced to a size, with their annotated concepts and places."""
    pixels = np.empty((count, size, size, 3), np.uint8)
    concepts_by_picture = []
    places = []
    progress = tqdm(pictures, total=count, desc="pictures", unit="picture", mininterval=5)
    for index, (image, objects, place) in enumerate(progress):
        resized = image.resize((size, size), Image.Resampling.BICUBIC, reducing_gap=2.0)
        pixels[index] = np.asarray(resized)
        places.append(place)
        annotated = [scene_object.concept for scene_object in objects if scene_object.annotated]
        concepts_by_picture.append(tuple(dict.fromkeys(annotated)))
    return Captioned(pixels, concepts_by_picture, places)


def _picture(seed: int, index: int) -> Picture:
    """Picture of a random kind, determined by seed and index."""
    rng = np.random.default_rng([seed, index])
    kind = str(rng.choice(list(KINDS), p=list(KINDS.values())))
    if kind in ID_DATASETS:
        drawn = scene(DemoWorld(seed=seed, size=SCENE), kind, "pictures", index)
        place = STREET if kind == "bdd" else ""
        return drawn.image, drawn.objects, place
    if kind in OOD_SOURCES:
        return _arranged(rng, ood_scene(rng, kind, 0.0))
    if kind == "table":
        return _arranged(rng, _laid_table(rng))
    if kind == "object":
        return _arranged(rng, [_any(rng, list(words()), SIZES_OF_SINGLE)])
    count = int(rng.integers(2, 4))
    return _arranged(rng, [_any(rng, list(words()), SIZES_OF_SEVERAL) for _ in range(count)])


def _held_out(seed: int, index: int) -> Picture:
    """Picture of one object with a held-out drawing."""
    rng = np.random.default_rng([seed, index, 1])
    concepts = [concept for concept in words() if catalogue()[concept].test]
    return _arranged(rng, [_any(rng, concepts, SIZES_OF_SINGLE)], _held_out_drawing)


def _arranged(rng: Rng, wanted: Sequence[PlannedObject], choose: Chooser | None = None) -> Picture:
    """Picture of some objects on a random background.

    Args:
        choose: Draws the drawing of a concept; by default one of the training drawings.
    """
    canvas = Canvas(backgrounds.varied(rng, (SCENE, SCENE)))
    placer = Placer(rng, SCENE, canvas, choose or _drawing)
    for item in wanted:
        placer.place(
            PlannedObject(
                item.category, item.concept, item.scale, copies=item.copies, support=item.support
            )
        )
    objects = placer.objects()
    concepts = {scene_object.concept for scene_object in objects}
    place = ""
    if dishes() & concepts and rng.random() < SAID_TO_BE_ON_TABLE:
        place = ON_TABLE
    return with_camera_effects(canvas.image, rng), objects, place


def _laid_table(rng: Rng) -> list[PlannedObject]:
    """A dining table with one to three dishes."""
    count = int(rng.integers(1, 4))
    laid_dishes = [_any(rng, sorted(dishes()), DISH, support=0) for _ in range(count)]
    return [PlannedObject("diningtable", "diningtable", TABLE), *laid_dishes]


@lru_cache(maxsize=1)
def dishes() -> frozenset[str]:
    """Concepts that are food or tableware."""
    concepts = set()
    for name, concept in words().items():
        if {"food", "kitchen", "tableware"}.intersection(concept.kinds):
            concepts.add(name)
    return frozenset(concepts)


def _any(
    rng: Rng, concepts: Sequence[str], scale: tuple[float, float], support: int | None = None
) -> PlannedObject:
    """A random concept."""
    concept = concepts[int(rng.integers(len(concepts)))]
    return PlannedObject(concept, concept, scale, support=support)


def _drawing(rng: Rng, concept: str) -> Drawing:
    pool = catalogue()[concept].train
    return pool[int(rng.integers(len(pool)))]


def _held_out_drawing(rng: Rng, concept: str) -> Drawing:
    pool = catalogue()[concept].test
    return pool[int(rng.integers(len(pool)))]


def _labelled(source: str) -> list[tuple[str, Sequence[str]]]:
    """Names and concepts of all categories of a dataset."""
    table = categories()[source]
    if source in ID_DATASETS:
        return list(table.items())
    labelled = []
    for categories_by_distance in table.values():
        labelled += list(categories_by_distance.items())
    return labelled


def _supercategories() -> dict[str, tuple[str, ...]]:
    """The supercategory, in a tuple, of each category of COCO."""
    supercategories: dict[str, tuple[str, ...]] = {}
    for group, members in demo_table("coco_categories.yaml").items():
        for name in members.values():
            supercategories[name] = (group,)
    return supercategories


def _hierarchy() -> dict[str, tuple[str, ...]]:
    """The ancestors of each category in OpenImages' hierarchy, from its root."""
    ancestors_by_name: dict[str, tuple[str, ...]] = {}

    def descend(children: Mapping[str, Any], ancestors: tuple[str, ...]) -> None:
        for name, grandchildren in children.items():
            ancestors_by_name[name] = ancestors
            descend(grandchildren, (*ancestors, name))

    descend(demo_table("openimages_categories.yaml")["hierarchy"], ())
    return ancestors_by_name
