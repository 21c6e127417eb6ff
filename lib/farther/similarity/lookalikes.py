"""The most similar image of a growing set, one query at a time: embeddings of a pool are read only where needed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from farther.errors import DataError
from farther.similarity.embeddings import EmbeddingsFolder
from farther.tables.files import inside

#: A subset of a dataset.
Subset = tuple[str, str]


def not_embedded(embeddings: str | Path, subsets: Iterable[Subset]) -> list[str]:
    """The subsets that have no embeddings, as `dataset subset`, each once."""
    wanted = dict.fromkeys(subsets)
    headers = {subset: inside(embeddings, "/".join(subset)) / "embeddings.json" for subset in wanted}
    return [" ".join(subset) for subset, header in headers.items() if not header.exists()]


class Resemblance(NamedTuple):
    """The images most similar to an image.

    Args:
        neighbour: The most similar ID image.
        cosine: Its cosine.
        repeats: The most similar of all known images, as `dataset subset image_id`, if its cosine is at least the
            threshold; else "".
    """

    neighbour: str
    cosine: float
    repeats: str


class Lookalikes:
    """Compares images with those of a benchmark, and with images added by `take`.

    Args:
        embeddings: Folder of the embeddings of all datasets, as `embed` writes them.
        id_subsets: Subsets of the ID dataset.
        known: Other subsets, each with its images in the benchmark.
        threshold: Lowest cosine of an image that repeats another.

    Raises:
        DataError: a subset was not embedded, or by another model than the first; or no ID image has an embedding.
    """

    def __init__(
        self,
        embeddings: str | Path,
        id_subsets: Collection[Subset],
        known: Mapping[Subset, Collection[str]],
        threshold: float,
    ):
        self._folder, self._threshold = Path(embeddings), threshold
        self._subsets: dict[Subset, tuple[dict[str, int], np.ndarray]] = {}
        self._encoder: object = None
        self._names: list[str] = []
        parts = []
        for subset in id_subsets:
            rows, vectors = self._subset(subset)
            parts.append(vectors)
            self._names += [" ".join((*subset, image_id)) for image_id in rows]
        self._ids = len(self._names)
        for subset, images in known.items():
            rows, vectors = self._subset(subset)
            embedded = [image_id for image_id in images if image_id in rows]
            parts.append(vectors[[rows[image_id] for image_id in embedded]])
            self._names += [" ".join((*subset, image_id)) for image_id in embedded]
        if not self._ids:
            raise DataError("no ID image has an embedding, so similarity to ID is undefined", file=self._folder)
        self._vectors = np.concatenate(parts).astype(np.float32)
        self._taken: list[np.ndarray] = []

    def compare(self, dataset: str, subset: str, image_id: str) -> Resemblance | None:
        """The images most similar to an image; None when it has no embedding.

        Raises:
            DataError: the subset was not embedded, or by another model.
        """
        vector = self._vector((dataset, subset), image_id)
        if vector is None:
            return None
        cosines = self._vectors @ vector
        nearest = int(cosines[: self._ids].argmax())
        if self._taken:
            cosines = np.concatenate([cosines, np.stack(self._taken) @ vector])
        best = int(cosines.argmax())
        repeats = self._names[best] if cosines[best] >= self._threshold else ""
        neighbour = self._names[nearest].split(" ", 2)[2]
        return Resemblance(neighbour, float(np.clip(cosines[nearest], -1, 1)), repeats)

    def take(self, dataset: str, subset: str, image_id: str) -> None:
        """Adds an image to the known ones.

        Raises:
            DataError: the subset was not embedded, or by another model.
        """
        vector = self._vector((dataset, subset), image_id)
        if vector is not None:
            self._taken.append(vector)
            self._names.append(" ".join((dataset, subset, image_id)))

    def _vector(self, subset: Subset, image_id: str) -> np.ndarray | None:
        rows, vectors = self._subset(subset)
        return vectors[rows[image_id]].astype(np.float32) if image_id in rows else None

    def _subset(self, subset: Subset) -> tuple[dict[str, int], np.ndarray]:
        """Row of each image, and the vectors."""
        if subset not in self._subsets:
            folder = EmbeddingsFolder(inside(self._folder, "/".join(subset)))
            encoder = folder.info["encoder"]
            if self._encoder is not None and encoder != self._encoder:
                problem = f"embedded by {encoder}, others by {self._encoder}; run `embed` again"
                raise DataError(problem, file=folder.path)
            self._encoder = encoder
            stored = folder.read()
            self._subsets[subset] = {name: row for row, name in enumerate(stored.image_id)}, stored.embedding
        return self._subsets[subset]
