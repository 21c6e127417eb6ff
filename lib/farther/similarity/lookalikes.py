"""The most similar image of a growing set, one query at a time.

Embeddings of a pool are read only where needed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from farther.errors import DataError
from farther.similarity.embeddings import EmbeddingsFolder
from farther.tables.files import inside

#: A subset of a dataset.
Subset = tuple[str, str]


class Resemblance(NamedTuple):
    """The images most similar to an image.

    Args:
        neighbour: The most similar ID image.
        cosine: Its cosine.
        repeats: The most similar of all known images, as `dataset subset image_id`, if its cosine
            is at least the threshold; else "".
    """

    neighbour: str
    cosine: float
    repeats: str


def not_embedded(embeddings: str | Path, subsets: Iterable[Subset]) -> list[str]:
    """The subsets that have no embeddings, as `dataset subset`, each once."""
    missing = []
    for subset in dict.fromkeys(subsets):
        header = _folder(embeddings, subset) / "embeddings.json"
        if not header.exists():
            missing.append(" ".join(subset))
    return missing


def _folder(embeddings: str | Path, subset: Subset) -> Path:
    """Folder of the embeddings of a subset."""
    return inside(embeddings, "/".join(subset))


class Lookalikes:
    """Compares images with those of a benchmark, and with images added by `take`.

    Args:
        embeddings: Folder of the embeddings of all datasets, as `embed` writes them.
        id_subsets: Subsets of the ID dataset.
        known: Other subsets, each with its images in the benchmark.
        threshold: Lowest cosine of an image that repeats another.

    Raises:
        DataError: a subset was not embedded, or by another model than the first; or no ID image has
            an embedding.
    """

    def __init__(
        self,
        embeddings: str | Path,
        id_subsets: Collection[Subset],
        known: Mapping[Subset, Collection[str]],
        threshold: float,
    ):
        self._folder = Path(embeddings)
        self._threshold = threshold
        self._encoder: dict[str, Any] = {}
        self._vectors_by_subset: dict[Subset, dict[str, np.ndarray]] = {}

        # Of all images: the ID images, then the other known ones, then those that are added.
        self._names: list[tuple[str, str, str]] = []
        vectors = []
        for subset in sorted(id_subsets):
            for image_id, vector in self._embedded(subset).items():
                self._names.append((*subset, image_id))
                vectors.append(vector)
        self._id_images = len(vectors)
        if not vectors:
            raise DataError(
                "no ID image has an embedding, so similarity to ID is undefined", file=self._folder
            )
        for subset, images in sorted(known.items()):
            for image_id, vector in self._embedded(subset).items():
                if image_id in images:
                    self._names.append((*subset, image_id))
                    vectors.append(vector)
        self._vectors = np.stack(vectors).astype(np.float32)
        self._added_vectors: list[np.ndarray] = []

    def compare(self, dataset: str, subset: str, image_id: str) -> Resemblance | None:
        """The images most similar to an image; None when it has no embedding."""
        stored = self._embedded((dataset, subset)).get(image_id)
        if stored is None:
            return None
        vector = stored.astype(np.float32)
        added_cosines = [added @ vector for added in self._added_vectors]
        cosines = np.append(self._vectors @ vector, added_cosines)
        nearest_id = int(cosines[: self._id_images].argmax())
        nearest = int(cosines.argmax())
        repeats = ""
        if cosines[nearest] >= self._threshold:
            repeats = " ".join(self._names[nearest])
        _, _, neighbour = self._names[nearest_id]
        return Resemblance(neighbour, float(np.clip(cosines[nearest_id], -1, 1)), repeats)

    def take(self, dataset: str, subset: str, image_id: str) -> None:
        """Adds an image to the known ones."""
        stored = self._embedded((dataset, subset)).get(image_id)
        if stored is not None:
            self._added_vectors.append(stored.astype(np.float32))
            self._names.append((dataset, subset, image_id))

    def _embedded(self, subset: Subset) -> dict[str, np.ndarray]:
        """Embedding of each image of a subset; read when first used.

        Raises:
            DataError: the subset was not embedded, or by another model than the first.
        """
        if subset in self._vectors_by_subset:
            return self._vectors_by_subset[subset]
        folder = EmbeddingsFolder(_folder(self._folder, subset))
        if not self._encoder:
            self._encoder = folder.info.encoder
        if folder.info.encoder != self._encoder:
            problem = (
                f"embedded by {folder.info.encoder}, others by {self._encoder}; run `embed` again"
            )
            raise DataError(problem, file=folder.path)
        stored = folder.read()
        self._vectors_by_subset[subset] = dict(zip(stored.image_id, stored.embedding, strict=True))
        return self._vectors_by_subset[subset]
