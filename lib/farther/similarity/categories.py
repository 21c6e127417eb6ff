"""Similarity of each category of the OOD datasets to the ID classes: by name, by images, and by WordNet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from farther.similarity.prototypes import Prototypes
from farther.similarity.wordnet import NameSimilarity, WordNet, WordNetParams, distance_of
from farther.tables import Column, Table

#: Value of an unknown similarity: no image shows the category, or WordNet does not have the word.
UNKNOWN = -1.0


class CategorySimilarity(Table):
    """One row per category of an OOD dataset.

    Columns:
        dataset, category: The category.
        images: Images of OOD splits that show it.
        name_class, name_similarity: The ID class with the most similar name by CLIP's text encoder, and the cosine.
        image_class, image_similarity: The ID class with the most similar prototype, and the cosine.
        wordnet_class: The most similar ID class by WordNet, "" without WordNet or if it does not have the word.
        path, wu_palmer, leacock_chodorow, wordnet_similarity: The three similarities to it, and their mean.
        wordnet_distance: "ID", "near" or "far", or "".

    Unknown values are "" or -1.
    """

    dataset = Column(pl.String)
    category = Column(pl.String)
    images = Column(pl.Int64)
    name_class = Column(pl.String)
    name_similarity = Column(pl.Float32)
    image_class = Column(pl.String)
    image_similarity = Column(pl.Float32)
    wordnet_class = Column(pl.String)
    path = Column(pl.Float32)
    wu_palmer = Column(pl.Float32)
    leacock_chodorow = Column(pl.Float32)
    wordnet_similarity = Column(pl.Float32)
    wordnet_distance = Column(pl.String)


@dataclass(frozen=True)
class IdClasses:
    """Embeddings of the ID classes.

    Args:
        names: Embedding of each name.
        prototypes: Their prototypes.
    """

    names: Mapping[str, np.ndarray]
    prototypes: Prototypes


def category_similarities(
    dataset: str,
    names: Mapping[str, np.ndarray],
    shown: Prototypes,
    id_classes: IdClasses,
    wordnet: tuple[WordNet, WordNetParams] | None = None,
) -> CategorySimilarity:
    """The nearest ID class of each category of a dataset."""
    categories, id_names = list(names), id_classes.names
    no_images = np.zeros(len(id_names), np.int64)
    by_name = _nearest(Prototypes(tuple(id_names), np.array(list(id_names.values())), no_images), names)
    by_image = _nearest(id_classes.prototypes, dict(zip(shown.classes, shown.vectors, strict=True)))
    counts = dict(zip(shown.classes, shown.images.tolist(), strict=True))
    words = [None if wordnet is None else wordnet[0].nearest(name, list(id_names)) for name in categories]
    similar = [NameSimilarity(UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN) if one is None else one for one in words]
    unknown = ("", UNKNOWN)
    return CategorySimilarity(
        dataset=[dataset] * len(categories),
        category=categories,
        images=[counts.get(name, 0) for name in categories],
        name_class=[by_name.get(name, unknown)[0] for name in categories],
        name_similarity=[by_name.get(name, unknown)[1] for name in categories],
        image_class=[by_image.get(name, unknown)[0] for name in categories],
        image_similarity=[by_image.get(name, unknown)[1] for name in categories],
        wordnet_class=[one.other for one in similar],
        path=[one.path for one in similar],
        wu_palmer=[one.wu_palmer for one in similar],
        leacock_chodorow=[one.leacock_chodorow for one in similar],
        wordnet_similarity=[one.mean for one in similar],
        wordnet_distance=["" if one is None or wordnet is None else distance_of(one, wordnet[1]) for one in words],
    )


def _nearest(classes: Prototypes, vectors: Mapping[str, np.ndarray]) -> dict[str, tuple[str, float]]:
    """The class most similar to each vector, and the cosine."""
    if not vectors or not len(classes):
        return {}
    found, cosines = classes.nearest(np.stack(list(vectors.values())))
    return dict(zip(vectors, zip(found, cosines.tolist(), strict=True), strict=True))
