"""Parameters of the demo world, and the objects of each scene before anything is drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from pydantic import Field, NonNegativeInt
from pydantic.dataclasses import dataclass as checked

from farther.naming.registry import STRICT, Parameters
from farther_demo.drawings import demo_table

Rng = np.random.Generator
Concepts = Mapping[str, Sequence[str]]

ID_DATASETS = ("voc", "bdd")
OOD_SOURCES = ("coco", "openimages")
#: The dataset for classifiers.
CROPS = "drawings"
#: Its subset of unknown classes.
UNKNOWN = "unknown"

#: Fraction of each kind of scene in an OOD source.
MIXTURE = {
    "near": 0.30,
    "far": 0.34,
    "near and far": 0.04,
    "table": 0.08,
    "people": 0.07,
    "unlabelled people": 0.05,
    "known": 0.06,
    "crowd": 0.04,
    "empty": 0.02,
}
#: Fraction of the scenes of an ID dataset without objects.
EMPTY = 0.02

_TABLE_LABEL = {"coco": "dining table", "openimages": "Kitchen & dining room table"}

# Ranges of an object's longest side, as a fraction of the scene's longest side.
_ROOMY = (0.2, 0.7)
_SMALL = (0.18, 0.45)
_LARGE = (0.6, 0.85)
_ON_TABLE = (0.12, 0.22)
_IN_CROWD = (0.1, 0.2)
_FILLING = (0.6, 1.0)


@checked(config=STRICT, kw_only=True, frozen=True)
class Subsets(Parameters):
    """Number of scenes in each subset of an ID dataset.

    Args:
        train, val, test: Number of images in the subset of this name.
    """

    train: NonNegativeInt
    val: NonNegativeInt
    test: NonNegativeInt


@checked(config=STRICT, kw_only=True, frozen=True)
class DemoWorld(Parameters):
    """Number, size and difficulty of the scenes.

    Args:
        seed: Seed of all random choices.
        size: Longest side of a scene in pixels.
        jpeg_quality: Pillow's quality of the JPEG files.
        held_out: Fraction of the objects of validation and test subsets that are drawn by held-out
            drawings.
        missing_labels: Fraction of the objects of `openimages` without a label.
        most: Largest number of images that are written per subset of `voc`, `bdd` and `drawings`,
            selected as by a benchmark's `most`, which then selects the same images as from all of
            them; None writes all, as the detectors were trained on them.
        voc, bdd: Number of scenes in each subset of the dataset.
        coco, openimages: Number of scenes of the dataset.
        crop_size: Side of the images of `drawings` in pixels.
        drawings: Number of images in each of its subsets of known classes; all classes are equally
            frequent.
        drawings_unknown: Number of images in its subset `unknown`.
    """

    seed: NonNegativeInt = 7
    size: int = Field(default=224, ge=96)
    jpeg_quality: int = Field(default=88, ge=30, le=95)
    held_out: float = Field(default=0.4, ge=0, le=1)
    missing_labels: float = Field(default=0.1, ge=0, le=1)
    most: Subsets | None = None
    voc: Subsets = Subsets(train=3000, val=400, test=500)
    bdd: Subsets = Subsets(train=2500, val=400, test=500)
    coco: NonNegativeInt = 900
    openimages: NonNegativeInt = 900
    crop_size: int = Field(default=64, ge=32)
    drawings: Subsets = Subsets(train=2400, val=400, test=400)
    drawings_unknown: NonNegativeInt = 340


@dataclass(frozen=True)
class PlannedObject:
    """An object, or a crowd, to place in a scene."""

    category: str
    """Name in the dataset's vocabulary."""
    concept: str
    """Key of `drawings.yaml`."""
    scale: tuple[float, float]
    """Range of the longest side, as a fraction of the scene's longest side."""
    labelled: bool = True
    copies: int = 1
    support: int | None = None
    """Index of the object that this one is placed on."""


def categories() -> Mapping[str, Any]:
    """The table `categories.yaml`: the categories of each dataset, and the concepts of each."""
    return demo_table("categories.yaml")


@lru_cache(maxsize=1)
def shown_by() -> Mapping[str, frozenset[str]]:
    """ID classes, by the names of `voc` and of `bdd`, that the drawings of each concept show."""
    names_by_concept: dict[str, set[str]] = {}
    for source in (*ID_DATASETS, "also_shows"):
        for name, concepts in categories()[source].items():
            for concept in concepts:
                names_by_concept.setdefault(concept, set()).add(name)
    return {concept: frozenset(names) for concept, names in sorted(names_by_concept.items())}


def id_scene(rng: Rng, dataset: str) -> list[PlannedObject]:
    """Objects of a scene of an ID dataset; all classes are equally frequent."""
    if rng.random() < EMPTY:
        return []
    counts = (1, 2, 3, 4) if dataset == "voc" else (2, 3, 4, 5, 6, 7)
    return _several(rng, categories()[dataset], int(rng.choice(counts)))


def crop_class(subset: str, index: int) -> str:
    """Class of an image of `drawings`: each class of its subset in turn."""
    names = list(_crop_classes(subset))
    return names[index % len(names)]


def crop_object(rng: Rng, subset: str, index: int) -> PlannedObject:
    """The object that nearly fills an image of `drawings`."""
    name = crop_class(subset, index)
    return _any(rng, {name: _crop_classes(subset)[name]}, _FILLING)


def _crop_classes(subset: str) -> Concepts:
    """Concepts that show each class of a subset of `drawings`."""
    if subset == UNKNOWN:
        unknown = categories()["drawings_unknown"]
        return {**unknown["near"], **unknown["far"]}
    known: Concepts = categories()[CROPS]
    return known


def ood_scene(rng: Rng, source: str, missing_labels: float) -> list[PlannedObject]:
    """Objects of a scene of an OOD source.

    Objects are unknown; some scenes have objects of ID classes or overlaps, too.

    Args:
        rng: Source of random numbers.
        source: The OOD source.
        missing_labels: Probability that an object has no label.
    """
    kind = str(rng.choice(list(MIXTURE), p=list(MIXTURE.values())))
    objects = []
    for wanted in _scene_of_kind(rng, source, kind):
        # Unlabelled objects draw no random number.
        labelled = wanted.labelled and rng.random() >= missing_labels
        objects.append(replace(wanted, labelled=labelled))
    return objects


def _scene_of_kind(rng: Rng, source: str, kind: str) -> list[PlannedObject]:
    """Objects of a scene of one of the kinds of `MIXTURE`."""
    table = categories()[source]
    if kind == "empty":
        return []
    if kind == "table":
        return _laid_table(rng, source, table["table"])
    if kind == "crowd":
        member = _any(rng, table["crowd"], _IN_CROWD)
        crowd = replace(member, copies=int(rng.integers(6, 11)))
        return [crowd, *_unknown(rng, table, "far", max_count=1)]
    if kind == "near and far":
        near = _unknown(rng, table, "near", max_count=2)
        far = _unknown(rng, table, "far", max_count=2)
        return near + far
    if kind in ("near", "far"):
        return _unknown(rng, table, kind, max_count=3)

    distance = str(rng.choice(["near", "far"]))
    unknown = _unknown(rng, table, distance, max_count=2)
    if kind in ("known", "people"):
        return [_any(rng, table[kind], _ROOMY), *unknown]
    people = table["people"].items()
    persons = {name: concepts for name, concepts in people if name.lower() == "person"}
    return [replace(_any(rng, persons, _ROOMY), labelled=False), *unknown]


def _unknown(
    rng: Rng, table: Mapping[str, Concepts], distance: str, max_count: int
) -> list[PlannedObject]:
    """One to `max_count` unknown objects of a distance, "near" or "far"."""
    return _several(rng, table[distance], int(rng.integers(1, max_count + 1)))


def _several(rng: Rng, concepts: Concepts, count: int) -> list[PlannedObject]:
    """Random objects of some categories, smaller ones where there are three or more."""
    scale = _ROOMY if count < 3 else _SMALL
    return [_any(rng, concepts, scale) for _ in range(count)]


def _laid_table(rng: Rng, source: str, dishes: Concepts) -> list[PlannedObject]:
    """A dining table, mostly unlabelled, and labelled dishes on it."""
    table = PlannedObject(
        _TABLE_LABEL[source], "diningtable", _LARGE, labelled=bool(rng.random() < 0.25)
    )
    count = int(rng.integers(2, 5))
    dishes_on_table = [replace(_any(rng, dishes, _ON_TABLE), support=0) for _ in range(count)]
    return [table, *dishes_on_table]


def _any(rng: Rng, concepts: Concepts, scale: tuple[float, float]) -> PlannedObject:
    """A random object: any of the categories, and any of its concepts."""
    names = list(concepts)
    name = names[int(rng.integers(len(names)))]
    choices = concepts[name]
    return PlannedObject(name, choices[int(rng.integers(len(choices)))], scale)
