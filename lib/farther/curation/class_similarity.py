"""Sorting of classes by the similarity of their names to the nearest ID class, and how far out each class is."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from os.path import normpath
from pathlib import Path
from typing import Annotated

import polars as pl
from pydantic import Field
from pydantic.dataclasses import dataclass

from farther.curation.sources import LabelledImages
from farther.datasets.hierarchy import Measure, NameSimilarity, Scale, read_synsets
from farther.datasets.wordnet import open_hierarchy
from farther.registry import STRICT
from farther.tables import ClassPairs, ImageClasses, SortedClasses

#: OODness of a class that no rule is about.
FARTHEST = 3

#: Similarities that differ by less are equal.
ROUNDING = 1e-9


@dataclass(config=STRICT, frozen=True, kw_only=True)
class ClassesBy:
    """How classes that no list of the rules file names are sorted: by similarity to the nearest ID class.

    Args:
        similarity: The similarity of two names; see `farther.datasets.hierarchy.NameSimilarity`.
        near_above: Least similarity of a near class.
        overlap_above: Least similarity at which a class overlaps with an ID class; 1: the same
            kind.
        hierarchy: WordNet's `dict` folder, or a YAML file
            (`farther.datasets.hierarchy.HierarchyFile`), relative to the rules file.
        synsets: File that maps class names to synsets, relative to the rules file; see
            `read_synsets`.
        leacock_chodorow: See `farther.datasets.wordnet.WordNetParams`.

    Raises:
        ValueError: `overlap_above` is below `near_above`.
    """

    near_above: Annotated[float, Field(ge=0)]
    overlap_above: Annotated[float, Field(ge=0)] = 1.0
    similarity: Measure = "mean"
    hierarchy: str = "../similarity/wordnet"
    synsets: str | None = None
    leacock_chodorow: Scale = "normalised"

    def __post_init__(self) -> None:
        if self.overlap_above < self.near_above:
            raise ValueError(
                f"overlap_above = {self.overlap_above} is below near_above = {self.near_above}"
            )


class ClassSimilarity:
    """Similarity of class names to the nearest of several ID classes.

    Args:
        by: How it is measured.
        folder: The folder that paths in `by` are relative to.
        id_classes: The ID classes.

    Raises:
        DataError: the hierarchy or the mapping of synsets is absent or damaged, or has none of the
            ID classes.
    """

    def __init__(self, by: ClassesBy, folder: Path, id_classes: Sequence[str]):
        self.by = by
        self._id_classes = id_classes
        synsets = None if by.synsets is None else read_synsets(normpath(folder / by.synsets))
        self.hierarchy = open_hierarchy(
            normpath(folder / by.hierarchy), synsets, by.leacock_chodorow
        )
        self._nearest = cache(lambda name: self.hierarchy.nearest(name, id_classes, by.similarity))

    def nearest(self, category: str) -> tuple[str, float] | None:
        """The most similar ID class and the similarity; None for a name that the hierarchy does not have."""
        found: NameSimilarity | None = self._nearest(category)
        return None if found is None else (found.other, float(getattr(found, self.by.similarity)))

    def pairs(self, categories: Sequence[str]) -> ClassPairs:
        """Similarity of each category to each ID class, but for names that the hierarchy does not have."""
        found = [
            (category, similarity)
            for category in dict.fromkeys(categories)
            for id_class in self._id_classes
            if (similarity := self.hierarchy.similarity(category, id_class)) is not None
        ]
        measures = ("path", "wu_palmer", "leacock_chodorow")
        return ClassPairs(
            category=[category for category, _ in found],
            id_class=[similarity.other for _, similarity in found],
            **{name: [getattr(similarity, name) for _, similarity in found] for name in measures},
        )

    def unknown(self, categories: Sequence[str]) -> list[str]:
        """The ID classes, then the categories, that the hierarchy does not have."""
        return [
            name
            for name in dict.fromkeys((*self._id_classes, *categories))
            if not self.hierarchy.synsets(name)
        ]


def image_classes(source: LabelledImages, classes: SortedClasses) -> ImageClasses:
    """The class of each image that decides how far out it is.

    Args:
        source: Images of one dataset.
        classes: The classes of that dataset.
    """
    nearest = (
        source.objects.frame.select("image_id", "category")
        .join(
            classes.frame.select("category", "oodness"),
            on="category",
            how="left",
            maintain_order="left",
        )
        .with_columns(pl.col("oodness").fill_null(FARTHEST))
        .sort("oodness", maintain_order=True)
        .unique("image_id", keep="first", maintain_order=True)
    )
    joined = source.images.frame.select("image_id").join(
        nearest, on="image_id", how="left", maintain_order="left"
    )
    filled = joined.with_columns(
        pl.col("category").fill_null(""), pl.col("oodness").fill_null(FARTHEST)
    )
    return ImageClasses.from_frame(filled)
