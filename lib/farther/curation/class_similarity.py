"""Sorting of classes by the similarity of their names to the nearest ID class, and how far out each class is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import polars as pl
from pydantic import Field
from pydantic.dataclasses import dataclass

from farther.datasets.hierarchy import Measure, NameSimilarity, Scale, read_synsets
from farther.datasets.wordnet import open_hierarchy
from farther.errors import ParameterError
from farther.registry import STRICT
from farther.tables import Column, Table

#: What `oodness` means, by its value.
OODNESS = ("an ID class", "overlaps with an ID class", "near to an ID class", "neither")

#: Similarities that differ by less are equal.
ROUNDING = 1e-9


@dataclass(config=STRICT, frozen=True, kw_only=True)
class ClassesBy:
    """How classes that no list of the rules file names are sorted: by similarity to the nearest ID class.

    Args:
        similarity: The similarity of two names; see `farther.datasets.hierarchy.NameSimilarity`.
        near_above: Least similarity of a near class.
        overlap_above: Least similarity at which a class overlaps with an ID class; 1: the same kind.
        hierarchy: WordNet's `dict` folder, or a YAML file (`farther.datasets.hierarchy.HierarchyFile`), relative to
            the rules file.
        synsets: File that maps class names to synsets, relative to the rules file; see `read_synsets`.
        leacock_chodorow: See `farther.datasets.wordnet.WordNetParams`.

    Raises:
        ParameterError: `overlap_above` is below `near_above`.
    """

    near_above: Annotated[float, Field(ge=0)]
    overlap_above: Annotated[float, Field(ge=0)] = 1.0
    similarity: Measure = "mean"
    hierarchy: str = "../similarity/wordnet"
    synsets: str | None = None
    leacock_chodorow: Scale = "normalised"

    def __post_init__(self) -> None:
        if self.overlap_above < self.near_above:
            raise ParameterError(f"parameter 'overlap_above': {self.overlap_above} is below near_above")


class ClassSimilarity:
    """Similarity of class names to the nearest of several ID classes.

    Args:
        by: How it is measured.
        folder: The folder that paths in `by` are relative to.
        id_classes: The ID classes.

    Raises:
        DataError: the hierarchy or the mapping of synsets is absent or damaged, or has none of the ID classes.
    """

    def __init__(self, by: ClassesBy, folder: Path, id_classes: Sequence[str]):
        self.by = by
        self._id_classes = id_classes
        synsets = None if by.synsets is None else read_synsets(folder / by.synsets)
        self.hierarchy = open_hierarchy(folder / by.hierarchy, synsets, by.leacock_chodorow)
        self._nearest: dict[str, NameSimilarity | None] = {}

    def nearest(self, category: str) -> tuple[str, float] | None:
        """The most similar ID class and the similarity; None for a name that the hierarchy does not have."""
        if category not in self._nearest:
            self._nearest[category] = self.hierarchy.nearest(category, self._id_classes, self.by.similarity)
        found = self._nearest[category]
        return None if found is None else (found.other, float(getattr(found, self.by.similarity)))

    def unknown(self, categories: Sequence[str]) -> list[str]:
        """The ID classes, then the categories, that the hierarchy does not have."""
        return [name for name in dict.fromkeys((*self._id_classes, *categories)) if not self.hierarchy.synsets(name)]


class SortedClasses(Table):
    """One row per class of a dataset that a benchmark takes OOD images from.

    Columns:
        dataset, category: The class.
        oodness: 0: it is an ID class; 1: it overlaps with one; 2: it is near to one; 3: neither. In Recalcati et al.,
            "Toward a Realistic Benchmark for Out-of-Distribution Detection", 2024, Section IV, people judge this.
        rule: The rule that decided; "" for none.
        id_class: The ID class of that rule, or else the most similar one; "" where neither is known.
        similarity: Similarity to `nearest` by name; -1 without a hierarchy.
        nearest: The most similar ID class by name; "" without a hierarchy.
    """

    dataset = Column(pl.String)
    category = Column(pl.String)
    oodness = Column(pl.Int16)
    rule = Column(pl.String)
    id_class = Column(pl.String)
    similarity = Column(pl.Float64)
    nearest = Column(pl.String)
