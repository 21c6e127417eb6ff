"""Sorting of classes by the similarity of their names to the nearest ID class: their OODness."""

from __future__ import annotations

from collections.abc import Sequence
from os.path import normpath
from pathlib import Path
from typing import Annotated, Any

import polars as pl
from pydantic import Field
from pydantic.dataclasses import dataclass

from farther.curation.sources import LabelledImages
from farther.datasets.hierarchy import Measure, NameSimilarity, Scale, read_synsets
from farther.datasets.wordnet import open_hierarchy
from farther.naming.registry import STRICT, Parameters
from farther.tables import ClassPairs, ImageClasses, SortedClasses

#: OODness of a class that no rule names.
FARTHEST = 3

#: Similarities that differ by less are equal.
ROUNDING = 1e-9

#: The similarities of a pair of classes that are stored.
_MEASURES = ("path", "wu_palmer", "leacock_chodorow")


@dataclass(config=STRICT, frozen=True, kw_only=True)
class ClassesBy(Parameters):
    """Sorting of classes that no list of the class mapping names, by similarity to an ID class.

    Args:
        similarity: The similarity of two names; see `farther.datasets.hierarchy.NameSimilarity`.
        near_above: Lowest similarity to the nearest ID class at which a class is near.
        overlap_above: Lowest similarity at which a class overlaps with an ID class; 1: the same
            kind.
        hierarchy: WordNet's `dict` folder, or a YAML file
            (`farther.datasets.hierarchy.HierarchyFile`), relative to the class mapping.
        synsets: File that maps class names to synsets, relative to the class mapping; see
            `read_synsets`.
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
            raise ValueError(
                f"overlap_above = {self.overlap_above} is below near_above = {self.near_above}"
            )


class ClassSimilarity:
    """Similarity of class names to the nearest of several ID classes.

    Args:
        by: The measure and the hierarchy.
        folder: The folder that paths in `by` are relative to.
        id_classes: The ID classes.

    Attributes:
        hierarchy: The opened hierarchy.

    Raises:
        DataError: the hierarchy or the mapping of synsets is absent or damaged, or has none of the
            ID classes.
    """

    def __init__(self, by: ClassesBy, folder: Path, id_classes: Sequence[str]):
        self.by = by
        self._id_classes = id_classes
        synsets = None
        if by.synsets is not None:
            synsets = read_synsets(normpath(folder / by.synsets))
        self.hierarchy = open_hierarchy(
            normpath(folder / by.hierarchy), synsets, by.leacock_chodorow
        )
        self._nearest_by_category: dict[str, NameSimilarity | None] = {}

    def nearest(self, category: str) -> tuple[str, float] | None:
        """The most similar ID class and the similarity; None for a name outside the hierarchy."""
        if category not in self._nearest_by_category:
            self._nearest_by_category[category] = self.hierarchy.nearest(
                category, self._id_classes, self.by.similarity
            )
        nearest = self._nearest_by_category[category]
        if nearest is None:
            return None
        return nearest.other, float(getattr(nearest, self.by.similarity))

    def pairs(self, categories: Sequence[str]) -> ClassPairs:
        """Similarity of each category to each ID class, without names outside the hierarchy."""
        columns: dict[str, list[Any]] = {"category": [], "id_class": []}
        for measure in _MEASURES:
            columns[measure] = []
        for category in dict.fromkeys(categories):
            for id_class in self._id_classes:
                similarity = self.hierarchy.similarity(category, id_class)
                if similarity is None:
                    continue
                columns["category"].append(category)
                columns["id_class"].append(similarity.other)
                for measure in _MEASURES:
                    columns[measure].append(getattr(similarity, measure))
        return ClassPairs(**columns)

    def unknown(self, categories: Sequence[str]) -> list[str]:
        """The ID classes, then the categories, that the hierarchy does not have."""
        names = dict.fromkeys((*self._id_classes, *categories))
        return [name for name in names if not self.hierarchy.synsets(name)]


def image_classes(source: LabelledImages, classes: SortedClasses) -> ImageClasses:
    """The class with the lowest OODness in each image, which decides how far out the image is.

    Args:
        source: Images of one dataset.
        classes: The classes of that dataset.
    """
    oodness = pl.col("oodness").fill_null(FARTHEST)
    oodness_by_category = classes.frame.select("category", "oodness")
    objects = source.objects.frame.select("image_id", "category").join(
        oodness_by_category, on="category", how="left", maintain_order="left"
    )
    nearest = (
        objects.with_columns(oodness)
        .sort("oodness", maintain_order=True)
        .unique("image_id", keep="first", maintain_order=True)
    )
    images = source.images.frame.select("image_id").join(
        nearest, on="image_id", how="left", maintain_order="left"
    )
    return ImageClasses.from_frame(images.with_columns(pl.col("category").fill_null(""), oodness))
