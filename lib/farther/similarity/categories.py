"""Similarity of each category of the OOD datasets to the ID classes: by name, by images, and by WordNet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    """The nearest ID class of each category of a dataset.

    Args:
        dataset: Its name.
        names: Embedding of each category's name.
        shown: Prototypes of the categories that OOD images show.
        id_classes: The ID classes.
        wordnet: A WordNet and its parameters.
    """
    categories = list(names)
    by_name = _nearest_names(categories, names, id_classes.names)
    by_image = _nearest_prototypes(shown, id_classes.prototypes)
    counts = dict(zip(shown.classes, shown.images.tolist(), strict=True))
    words = [None if wordnet is None else wordnet[0].nearest(name, list(id_classes.names)) for name in categories]
    similar = [NameSimilarity(UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN) if one is None else one for one in words]
    return CategorySimilarity(
        dataset=np.full(len(categories), dataset, dtype=object),
        category=categories,
        images=np.array([counts.get(name, 0) for name in categories], np.int64),
        name_class=[by_name[name][0] for name in categories],
        name_similarity=np.array([by_name[name][1] for name in categories], np.float32),
        image_class=[by_image.get(name, ("", UNKNOWN))[0] for name in categories],
        image_similarity=np.array([by_image.get(name, ("", UNKNOWN))[1] for name in categories], np.float32),
        wordnet_class=[one.other for one in similar],
        path=np.array([one.path for one in similar], np.float32),
        wu_palmer=np.array([one.wu_palmer for one in similar], np.float32),
        leacock_chodorow=np.array([one.leacock_chodorow for one in similar], np.float32),
        wordnet_similarity=np.array([one.mean for one in similar], np.float32),
        wordnet_distance=["" if one is None or wordnet is None else distance_of(one, wordnet[1]) for one in words],
    )


def _nearest_names(
    categories: Sequence[str], names: Mapping[str, np.ndarray], id_names: Mapping[str, np.ndarray]
) -> dict[str, tuple[str, float]]:
    if not categories or not id_names:
        return dict.fromkeys(categories, ("", UNKNOWN))
    classes = Prototypes(tuple(id_names), np.stack(list(id_names.values())), np.zeros(len(id_names), np.int64))
    found, cosines = classes.nearest(np.stack([names[name] for name in categories]))
    return dict(zip(categories, zip(found, cosines.tolist(), strict=True), strict=True))


def _nearest_prototypes(shown: Prototypes, id_prototypes: Prototypes) -> dict[str, tuple[str, float]]:
    if not len(shown) or not len(id_prototypes):
        return {}
    found, cosines = id_prototypes.nearest(shown.vectors)
    return dict(zip(shown.classes, zip(found, cosines.tolist(), strict=True), strict=True))
