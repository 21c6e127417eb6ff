"""What a scene of each dataset holds, before anything is drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.resources import files
from typing import Any

import numpy as np
import yaml

Rng = np.random.Generator
Concepts = Mapping[str, Sequence[str]]

ID_DATASETS = ("voc", "bdd")
OOD_SOURCES = ("coco", "openimages")

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
"""Share of each kind of scene in an OOD source."""

EMPTY = 0.02
"""Share of the scenes of an ID dataset that hold no object."""

_TABLE_LABEL = {"coco": "dining table", "openimages": "Kitchen & dining room table"}
_ROOMY, _LARGE = (0.2, 0.7), (0.6, 0.85)
_ON_TABLE, _IN_CROWD = (0.12, 0.22), (0.1, 0.2)


@dataclass(frozen=True)
class Wanted:
    """One object, or one crowd, that a scene shall hold."""

    category: str
    """In the dataset's own vocabulary."""
    concept: str
    """What is drawn; see `drawings.yaml`."""
    scale: tuple[float, float]
    """Range of the longest side, as a fraction of the scene's longest side."""
    labelled: bool = True
    copies: int = 1
    support: int | None = None
    """Index of the wanted object that this one stands on."""


@lru_cache(maxsize=1)
def categories() -> Mapping[str, Any]:
    """The table `categories.yaml`: the categories of each dataset and the concepts that show them."""
    return yaml.safe_load((files(__package__) / "categories.yaml").read_text(encoding="utf-8"))


@lru_cache(maxsize=1)
def shown_by() -> Mapping[str, frozenset[str]]:
    """For each concept, the ID classes (in the words of `voc` and of `bdd`) that a picture of it shows."""
    table = categories()
    pairs = {
        (concept, name)
        for source in (*ID_DATASETS, "also_shows")
        for name, concepts in table[source].items()
        for concept in concepts
    }
    return {concept: frozenset(name for other, name in pairs if other == concept) for concept, _ in sorted(pairs)}


def id_scene(rng: Rng, dataset: str) -> list[Wanted]:
    """Objects of an ID dataset: all classes equally often."""
    if rng.random() < EMPTY:
        return []
    counts = (1, 2, 3, 4) if dataset == "voc" else (2, 3, 4, 5, 6, 7)
    count = int(rng.choice(counts))
    scale = _ROOMY if count < 3 else (0.18, 0.45)
    return [_any(rng, categories()[dataset], scale) for _ in range(count)]


def ood_scene(rng: Rng, source: str, missing_labels: float) -> list[Wanted]:
    """Objects of an OOD source: unknown ones, and in some scenes also what overlaps with an ID dataset."""
    kind = str(rng.choice(list(MIXTURE), p=list(MIXTURE.values())))
    wanted = _of_kind(rng, source, kind)
    return [replace(one, labelled=one.labelled and rng.random() >= missing_labels) for one in wanted]


def _of_kind(rng: Rng, source: str, kind: str) -> list[Wanted]:
    table = categories()[source]
    if kind == "empty":
        return []
    if kind == "table":
        return _laid_table(rng, source, table["table"])
    if kind == "crowd":
        one = _any(rng, table["crowd"], _IN_CROWD)
        return [replace(one, copies=int(rng.integers(6, 11))), *_unknown(rng, table, "far", most=1)]
    if kind == "near and far":
        return _unknown(rng, table, "near", most=2) + _unknown(rng, table, "far", most=2)
    if kind in ("near", "far"):
        return _unknown(rng, table, kind, most=3)
    company = _unknown(rng, table, str(rng.choice(["near", "far"])), most=2)
    if kind == "known":
        return [_any(rng, table["known"], _ROOMY), *company]
    if kind == "people":
        return [_any(rng, table["people"], _ROOMY), *company]
    whole = {name: concepts for name, concepts in table["people"].items() if name.lower() == "person"}
    return [replace(_any(rng, whole, _ROOMY), labelled=False), *company]


def _unknown(rng: Rng, table: Mapping[str, Concepts], distance: str, most: int) -> list[Wanted]:
    count = int(rng.integers(1, most + 1))
    scale = _ROOMY if count < 3 else (0.18, 0.45)
    return [_any(rng, table[distance], scale) for _ in range(count)]


def _laid_table(rng: Rng, source: str, dishes: Concepts) -> list[Wanted]:
    """A dining table, most often without a label of its own, and labelled dishes on it."""
    table = Wanted(_TABLE_LABEL[source], "diningtable", _LARGE, labelled=bool(rng.random() < 0.25))
    count = int(rng.integers(2, 5))
    return [table, *(replace(_any(rng, dishes, _ON_TABLE), support=0) for _ in range(count))]


def _any(rng: Rng, concepts: Concepts, scale: tuple[float, float]) -> Wanted:
    names = list(concepts)
    name = names[int(rng.integers(len(names)))]
    choices = concepts[name]
    return Wanted(name, choices[int(rng.integers(len(choices)))], scale)
