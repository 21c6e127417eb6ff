"""Negative prompts mined from a hierarchy of nouns: those farthest from the ID classes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field, PositiveInt
from pydantic.dataclasses import dataclass as checked

from farther.datasets.hierarchy import ClassHierarchy
from farther.errors import DataError
from farther.images.clip import Encoder
from farther.naming.registry import STRICT, Parameters

#: Texts whose cosines with the ID classes are in memory at once.
BLOCK = 8192


@checked(config=STRICT, kw_only=True)
class MiningParams(Parameters):
    """Parameters of the choice of negative prompts.

    Args:
        count: Number of prompts.
        quantile: A noun is as near as this quantile of its cosines with the ID classes; 0.95 is the
            paper's η of 0.05.
        templates: Sentences for a noun and for a class, in which `{}` stands for the word; several
            are averaged.
    """

    count: PositiveInt = 1000
    quantile: Annotated[float, Field(ge=0, le=1)] = 0.95
    templates: tuple[str, ...] = ()


@dataclass(frozen=True)
class Negatives:
    """Mined prompts.

    Args:
        prompts: The farthest first.
        cosines: The quantile of each one's cosines with the ID classes, ndarray of shape (N,).
        leaks: Of the prompts, those that name a category of an OOD test split, with that category.
    """

    prompts: list[str]
    cosines: np.ndarray
    leaks: dict[str, str]


def mine_negatives(
    encoder: Encoder,
    hierarchy: ClassHierarchy,
    id_classes: Sequence[str],
    categories: Collection[str],
    params: MiningParams | None = None,
    *,
    leave_out: bool = False,
) -> Negatives:
    """NegMine of NegLabel on the nouns of a hierarchy.

    Source: Jiang et al. 2024, arXiv:2403.20078, Section 3.1. Nouns that mean an ID class or a kind
    of one by their first sense are left out.

    Args:
        encoder: Embeds the texts.
        hierarchy: WordNet, or a file of kinds.
        id_classes: Words for the ID classes.
        categories: Categories of the unknown objects of the OOD test splits.
        params: Number of prompts, and their distance to the ID classes.
        leave_out: Leave out nouns that name one of the categories; else they are listed as leaks.

    Raises:
        DataError: the hierarchy has no candidate.
    """
    params = params or MiningParams()
    category_names = _Names(hierarchy, categories)
    id_names = _Names(hierarchy, id_classes)
    candidates = _distinct_nouns(hierarchy)
    cosines = _nearness(encoder, candidates, id_classes, params)
    rows: list[int] = []
    leaks: dict[str, str] = {}
    for row in np.argsort(cosines, kind="stable").tolist():
        noun = candidates[row]
        if id_names.same(noun) or any(hierarchy.is_a(noun, name) for name in id_classes):
            continue
        leaked_category = category_names.same(noun)
        if leaked_category and leave_out:
            continue
        if leaked_category:
            leaks[noun] = leaked_category
        rows.append(row)
        if len(rows) == params.count:
            break
    if not rows:
        raise DataError("has no noun that is not an ID class or a kind of one", file=hierarchy.path)
    return Negatives([candidates[row] for row in rows], cosines[rows], leaks)


class _Names:
    """Names, by themselves and by their nodes in a hierarchy."""

    def __init__(self, hierarchy: ClassHierarchy, names: Collection[str]):
        self._hierarchy = hierarchy
        self._name_by_text = {_normalised(name): name for name in names}
        self._name_by_node: dict[str, str] = {}
        for name in names:
            if hierarchy.has(name):
                self._name_by_node.update(dict.fromkeys(hierarchy.synsets(name), name))

    def same(self, noun: str) -> str | None:
        """The name that a noun is, or means by its first sense; None where there is none."""
        name = self._name_by_text.get(_normalised(noun))
        if name:
            return name
        for node in self._hierarchy.synsets(noun):
            if node in self._name_by_node:
                return self._name_by_node[node]
        return None


def _distinct_nouns(hierarchy: ClassHierarchy) -> list[str]:
    """The nouns of a hierarchy; of those that differ in case or spaces only, the last."""
    noun_by_text = {_normalised(noun): noun for noun in hierarchy.nouns()}
    return list(noun_by_text.values())


def _nearness(
    encoder: Encoder, nouns: Sequence[str], names: Sequence[str], params: MiningParams
) -> np.ndarray:
    """The quantile of each noun's cosines with the names, ndarray of shape (N,)."""
    name_vectors = encoder.names(names, params.templates)
    nearness = np.zeros(len(nouns))
    for first in range(0, len(nouns), BLOCK):
        block = slice(first, first + BLOCK)
        cosines = encoder.names(nouns[block], params.templates) @ name_vectors.T
        nearness[block] = np.quantile(cosines, params.quantile, axis=1)
    return nearness


def _normalised(name: str) -> str:
    """A name in lower case, with single spaces for spaces and underscores."""
    return " ".join(name.replace("_", " ").casefold().split())
