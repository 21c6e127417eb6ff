"""Class prototypes, and the similarity of each OOD category to the ID classes: by name, by images, and by WordNet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from farther.datasets.hierarchy import NameSimilarity
from farther.datasets.wordnet import WordNet, WordNetParams, distance_of
from farther.similarity.nearest import check_widths
from farther.similarity.sources import EmbeddedSplit
from farther.tables import Column, Objects, Table

#: Value of an unknown similarity: no image shows the category, or WordNet does not have the word.
UNKNOWN = -1.0


@dataclass(frozen=True)
class Prototypes:
    """One vector per class.

    Args:
        classes: Their names.
        vectors: ndarray of shape (number of classes, D), float32, rows of length 1.
        images: ndarray of shape (number of classes,), int64: number of images of each.
    """

    classes: tuple[str, ...]
    vectors: np.ndarray
    images: np.ndarray

    def __len__(self) -> int:
        return len(self.classes)

    def nearest(self, vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The class whose prototype is the most similar to each vector.

        Args:
            vectors: ndarray of shape (N, D), rows of length 1.

        Returns:
            Class names, object array (N,), and cosines, float32 (N,).

        Raises:
            DataError: the vectors have another length than the prototypes.
        """
        check_widths(vectors, self.vectors)
        cosines = vectors.astype(np.float32) @ self.vectors.T
        best = cosines.argmax(axis=1)
        return np.array(self.classes, dtype=object)[best], cosines[np.arange(len(best)), best]


class CategorySimilarity(Table):
    """One row per category of an OOD dataset.

    Columns:
        dataset, category: The category. images: Images of OOD splits that show it. name_class,
        name_similarity: The ID class with the most similar name by CLIP's text encoder, and the
        cosine. image_class, image_similarity: The ID class with the most similar prototype, and the
        cosine. wordnet_class: The most similar ID class by WordNet, "" without WordNet or if it
        does not have the word. path, wu_palmer, leacock_chodorow, wordnet_similarity: The three
        similarities to it, and their mean. wordnet_distance: "ID", "near" or "far", or "".

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
    by_name = _nearest(
        Prototypes(tuple(id_names), np.array(list(id_names.values())), no_images), names
    )
    by_image = _nearest(id_classes.prototypes, dict(zip(shown.classes, shown.vectors, strict=True)))
    counts = dict(zip(shown.classes, shown.images.tolist(), strict=True))
    words = [
        None if wordnet is None else wordnet[0].nearest(name, list(id_names)) for name in categories
    ]
    similar = [
        NameSimilarity(UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN) if one is None else one for one in words
    ]
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
        wordnet_distance=[
            "" if one is None or wordnet is None else distance_of(one, wordnet[1]) for one in words
        ],
    )


def _nearest(
    classes: Prototypes, vectors: Mapping[str, np.ndarray]
) -> dict[str, tuple[str, float]]:
    """The class most similar to each vector, and the cosine."""
    if not vectors or not len(classes):
        return {}
    found, cosines = classes.nearest(np.stack(list(vectors.values())))
    return dict(zip(vectors, zip(found, cosines.tolist(), strict=True), strict=True))


def prototypes(
    splits: Sequence[tuple[EmbeddedSplit, Objects]], classes: Iterable[str] | None = None
) -> Prototypes:
    """The mean of the embeddings of all images that show a class, at length 1.

    An image that shows several classes counts for each of them, once: CLIP sees whole images.

    Args:
        splits: Embedded splits and their objects.
        classes: The classes; None: all labelled ones, in alphabetical order. Classes without images
            are left out.
    """
    sums: dict[str, np.ndarray] = {}
    counts: dict[str, int] = {}
    for split, objects in splits:
        images = pl.DataFrame(
            {"image_id": pl.Series(split.image_id, dtype=pl.String)}
        ).with_row_index("row")
        shown = (
            objects.frame.select("image_id", "category")
            .unique()
            .join(images, on="image_id")
            .sort("row")
        )
        for (name,), rows in shown.group_by("category", maintain_order=True):
            vectors = split.vectors[rows["row"].to_numpy()].astype(np.float64)
            sums[name] = sums.get(name, 0) + vectors.sum(axis=0)
            counts[name] = counts.get(name, 0) + len(vectors)
    wanted = sorted(sums) if classes is None else [name for name in classes if name in sums]
    if not wanted:
        return Prototypes((), np.zeros((0, 1), np.float32), np.zeros(0, np.int64))
    total = np.stack([sums[name] for name in wanted])
    vectors = (total / np.maximum(np.linalg.norm(total, axis=1, keepdims=True), 1e-12)).astype(
        np.float32
    )
    return Prototypes(tuple(wanted), vectors, np.array([counts[name] for name in wanted], np.int64))
