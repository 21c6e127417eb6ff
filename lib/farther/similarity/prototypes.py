"""Class prototypes: the mean direction of the images that show a class."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from farther.similarity.sources import EmbeddedSplit
from farther.tables import Objects


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
        """
        cosines = vectors.astype(np.float32) @ self.vectors.T
        best = cosines.argmax(axis=1)
        return np.array(self.classes, dtype=object)[best], cosines[np.arange(len(best)), best]


def prototypes(splits: Sequence[tuple[EmbeddedSplit, Objects]], classes: Iterable[str] | None = None) -> Prototypes:
    """The mean of the embeddings of all images that show a class, at length 1.

    An image that shows several classes counts for each of them, once: CLIP sees whole images.

    Args:
        splits: Embedded splits and their objects.
        classes: The classes; None: all labelled ones, in alphabetical order. Classes without images are left out.
    """
    sums: dict[str, np.ndarray] = {}
    counts: dict[str, int] = {}
    for split, objects in splits:
        images = pl.DataFrame({"image_id": pl.Series(split.image_id, dtype=pl.String)}).with_row_index("row")
        shown = objects.frame.select("image_id", "category").unique().join(images, on="image_id").sort("row")
        for (name,), rows in shown.group_by("category", maintain_order=True):
            vectors = split.vectors[rows["row"].to_numpy()].astype(np.float64)
            sums[name] = sums.get(name, 0) + vectors.sum(axis=0)
            counts[name] = counts.get(name, 0) + len(vectors)
    wanted = sorted(sums) if classes is None else [name for name in classes if name in sums]
    if not wanted:
        return Prototypes((), np.zeros((0, 1), np.float32), np.zeros(0, np.int64))
    total = np.stack([sums[name] for name in wanted])
    vectors = (total / np.maximum(np.linalg.norm(total, axis=1, keepdims=True), 1e-12)).astype(np.float32)
    return Prototypes(tuple(wanted), vectors, np.array([counts[name] for name in wanted], np.int64))
