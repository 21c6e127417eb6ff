"""Negative prompts mined from a hierarchy of nouns: those whose texts are farthest from the ID classes."""

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
from farther.registry import STRICT

#: Texts whose cosines with the ID classes are in memory at once.
AT_ONCE = 8192


@checked(config=STRICT, kw_only=True)
class MiningParams:
    """How negative prompts are chosen.

    Args:
        count: How many.
        quantile: A noun is as near as this quantile of its cosines with the ID classes; 0.95 is the
            paper's η of 0.05.
        templates: Sentences for a noun and for a class, `{}` is the place; several are averaged.
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
    """NegMine of NegLabel on the nouns of a hierarchy (Jiang et al. 2024, arXiv:2403.20078, Section 3.1).

    Nouns that mean an ID class or a kind of one by their first sense are left out.

    Args:
        encoder: Embeds the texts.
        hierarchy: WordNet, or a file of kinds.
        id_classes: Words for the ID classes.
        categories: Categories of the unknown objects of the OOD test splits.
        params: How many, and how far.
        leave_out: Leave out nouns that name one of the categories; else they are listed as leaks.

    Raises:
        DataError: the hierarchy has no candidate.
    """
    params = params or MiningParams()
    named, known = _Names(hierarchy, categories), _Names(hierarchy, id_classes)
    candidates = list({_folded(noun): noun for noun in hierarchy.nouns()}.values())
    cosines = _nearness(encoder, candidates, id_classes, params)
    chosen: list[int] = []
    leaks: dict[str, str] = {}
    for row in np.argsort(cosines, kind="stable").tolist():
        noun = candidates[row]
        leak = named.same(noun)
        if (
            known.same(noun)
            or any(hierarchy.is_a(noun, name) for name in id_classes)
            or (leave_out and leak)
        ):
            continue
        chosen.append(row)
        if leak:
            leaks[noun] = leak
        if len(chosen) == params.count:
            break
    if not chosen:
        raise DataError("has no noun that is not an ID class or a kind of one", file=hierarchy.path)
    return Negatives([candidates[row] for row in chosen], cosines[chosen], leaks)


class _Names:
    """Names, by themselves and by their nodes in a hierarchy."""

    def __init__(self, hierarchy: ClassHierarchy, names: Collection[str]):
        self._hierarchy = hierarchy
        self._names = {_folded(name): name for name in names}
        self._nodes = {
            node: name for name in names if hierarchy.has(name) for node in hierarchy.synsets(name)
        }

    def same(self, noun: str) -> str | None:
        """The name that a noun is, or means by its first sense; None where there is none."""
        nodes = (self._nodes[node] for node in self._hierarchy.synsets(noun) if node in self._nodes)
        return self._names.get(_folded(noun)) or next(nodes, None)


def _nearness(
    encoder: Encoder, nouns: Sequence[str], names: Sequence[str], params: MiningParams
) -> np.ndarray:
    """The quantile of each noun's cosines with the names, ndarray of shape (N,)."""
    text = encoder.names(names, params.templates)
    found = [np.zeros(0)]
    for first in range(0, len(nouns), AT_ONCE):
        cosines = encoder.names(nouns[first : first + AT_ONCE], params.templates) @ text.T
        found.append(np.quantile(cosines, params.quantile, axis=1))
    return np.concatenate(found)


def _folded(name: str) -> str:
    return " ".join(name.replace("_", " ").casefold().split())
