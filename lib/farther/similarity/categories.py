"""Class prototypes, and the similarity of each OOD category to the ID classes.

By name, by images, and by WordNet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from farther.datasets.hierarchy import NameSimilarity
from farther.datasets.wordnet import WordNet, WordNetParams, distance_of
from farther.errors import DataError
from farther.similarity.nearest import check_widths
from farther.similarity.nearest import vectors as vectors_of
from farther.similarity.sources import EmbeddedSplit
from farther.tables import Column, Objects, Table
from farther.tables.arguments import instance, instances, integers, texts

#: Value of an unknown similarity: no image shows the category, or WordNet does not have the word.
UNKNOWN = -1.0


@dataclass(frozen=True)
class Prototypes:
    """One vector per class.

    Args:
        classes: Their names.
        vectors: ndarray of shape (number of classes, D), float32, rows of length 1.
        images: ndarray of shape (number of classes,), int64: number of images of each.

    Raises:
        DataError: a value is of another type or length; names it.
    """

    classes: tuple[str, ...]
    vectors: np.ndarray
    images: np.ndarray

    def __post_init__(self) -> None:
        classes = tuple(texts(self.classes, "classes").tolist())
        count = len(classes)
        object.__setattr__(self, "classes", classes)
        object.__setattr__(self, "vectors", vectors_of(self.vectors, "vectors", count))
        object.__setattr__(self, "images", integers(self.images, "images", shape=(count,)))

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
        vectors = vectors_of(vectors, "vectors")
        check_widths(vectors, self.vectors)
        cosines = vectors.astype(np.float32) @ self.vectors.T
        best = cosines.argmax(axis=1)
        best_cosine = cosines[np.arange(len(best)), best]
        return np.array(self.classes, dtype=object)[best], best_cosine


class CategorySimilarity(Table):
    """One row per category of an OOD dataset.

    Columns:
        dataset, category: The category.
        images: Images of OOD splits that show it.
        name_class, name_similarity: The ID class with the most similar name by CLIP's text encoder,
            and the cosine.
        image_class, image_similarity: The ID class with the most similar prototype, and the cosine.
        wordnet_class: The most similar ID class by WordNet, "" without WordNet or if it does not
            have the word.
        path, wu_palmer, leacock_chodorow, wordnet_similarity: The three similarities to it, and
            their mean.
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


@dataclass(frozen=True)
class _NearestClass:
    """The ID class that is most similar to a category; unknown by default."""

    name: str = ""
    cosine: float = UNKNOWN


def category_similarities(
    dataset: str,
    names: Mapping[str, np.ndarray],
    category_prototypes: Prototypes,
    id_classes: IdClasses,
    wordnet: tuple[WordNet, WordNetParams] | None = None,
) -> CategorySimilarity:
    """The nearest ID class of each category of a dataset.

    Args:
        dataset: Name of the dataset.
        names: Embedding of the name of each category.
        category_prototypes: Prototypes of the categories that images show.
        id_classes: Embeddings of the ID classes.
        wordnet: WordNet and the limits of its distances; None leaves its columns unknown.
    """
    id_names = list(id_classes.names)
    id_name_vectors = Prototypes(
        tuple(id_names),
        np.array(list(id_classes.names.values())),
        images=np.zeros(len(id_names), np.int64),
    )
    vector_by_category = dict(
        zip(category_prototypes.classes, category_prototypes.vectors, strict=True)
    )
    images_by_category = dict(
        zip(category_prototypes.classes, category_prototypes.images.tolist(), strict=True)
    )
    nearest_by_name = _nearest(id_name_vectors, names)
    nearest_by_image = _nearest(id_classes.prototypes, vector_by_category)

    unknown = _NearestClass()
    rows = []
    for category in names:
        by_name = nearest_by_name.get(category, unknown)
        by_image = nearest_by_image.get(category, unknown)
        row = {
            "dataset": dataset,
            "category": category,
            "images": images_by_category.get(category, 0),
            "name_class": by_name.name,
            "name_similarity": by_name.cosine,
            "image_class": by_image.name,
            "image_similarity": by_image.cosine,
            **_wordnet_columns(category, id_names, wordnet),
        }
        rows.append(row)
    columns = {}
    for column in CategorySimilarity.COLUMNS:
        values = [row[column.name] for row in rows]
        columns[column.name] = values
    return CategorySimilarity(**columns)


def _wordnet_columns(
    category: str, id_names: Sequence[str], wordnet: tuple[WordNet, WordNetParams] | None
) -> dict[str, str | float]:
    """The columns of a category that WordNet gives."""
    similarity = None
    distance = ""
    if wordnet is not None:
        graph, params = wordnet
        similarity = graph.nearest(category, id_names)
        if similarity is not None:
            distance = distance_of(similarity, params)
    if similarity is None:
        similarity = NameSimilarity(UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN)
    return {
        "wordnet_class": similarity.other,
        "path": similarity.path,
        "wu_palmer": similarity.wu_palmer,
        "leacock_chodorow": similarity.leacock_chodorow,
        "wordnet_similarity": similarity.mean,
        "wordnet_distance": distance,
    }


def _nearest(classes: Prototypes, vectors: Mapping[str, np.ndarray]) -> dict[str, _NearestClass]:
    """The class that is most similar to each vector, by the vector's name."""
    if not vectors or not len(classes):
        return {}
    nearest_names, cosines = classes.nearest(np.stack(list(vectors.values())))
    nearest = map(_NearestClass, nearest_names, cosines.tolist())
    return dict(zip(vectors, nearest, strict=True))


def prototypes(
    splits: Sequence[tuple[EmbeddedSplit, Objects]], classes: Iterable[str] | None = None
) -> Prototypes:
    """The mean of the embeddings of all images that show a class, at length 1.

    An image that shows several classes counts for each of them, once: CLIP embeds whole images.

    Args:
        splits: Embedded splits and their objects.
        classes: The classes; None: all labelled ones, in alphabetical order. Classes without images
            are left out.

    Raises:
        DataError: a value is of another type, or the splits were embedded by two models.
    """
    splits = _pairs_of(splits)
    if classes is not None:
        classes = texts(classes, "classes").tolist()
    sum_by_class: dict[str, np.ndarray] = {}
    count_by_class: dict[str, int] = {}
    for split, objects in splits:
        check_widths(split.vectors, splits[0][0].vectors)
        image_ids = pl.DataFrame({"image_id": pl.Series(split.image_id, dtype=pl.String)})
        images = image_ids.with_row_index("row")
        labels = objects.frame.select("image_id", "category").unique()
        labels_of_rows = labels.join(images, on="image_id").sort("row")
        for (name,), rows in labels_of_rows.group_by("category", maintain_order=True):
            vectors = split.vectors[rows["row"].to_numpy()].astype(np.float64)
            sum_by_class[name] = sum_by_class.get(name, 0) + vectors.sum(axis=0)
            count_by_class[name] = count_by_class.get(name, 0) + len(vectors)

    if classes is None:
        classes = sorted(sum_by_class)
    names = [name for name in classes if name in sum_by_class]
    if not names:
        return Prototypes((), np.zeros((0, 1), np.float32), np.zeros(0, np.int64))
    total = np.stack([sum_by_class[name] for name in names])
    length = np.maximum(np.linalg.norm(total, axis=1, keepdims=True), 1e-12)
    counts = np.array([count_by_class[name] for name in names], np.int64)
    return Prototypes(tuple(names), (total / length).astype(np.float32), counts)


def _pairs_of(splits: Any) -> list[tuple[EmbeddedSplit, Objects]]:
    """Embedded splits and their objects, if the argument is a list of such pairs."""
    pairs = []
    for pair in instances(splits, (tuple, list), "splits"):
        if len(pair) != 2:
            raise DataError(f"expected pairs, found {len(pair)} values in one", field="splits")
        split, objects = pair
        pairs.append(
            (instance(split, EmbeddedSplit, "splits"), instance(objects, Objects, "splits"))
        )
    return pairs
