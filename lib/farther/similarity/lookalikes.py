"""The most similar image of a growing set, one query at a time: embeddings of a pool are read only where needed."""

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
    wanted = dict.fromkeys(subsets)
    headers = {
        subset: inside(embeddings, "/".join(subset)) / "embeddings.json" for subset in wanted
    }
    return [" ".join(subset) for subset, header in headers.items() if not header.exists()]


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
        self._folder, self._threshold, self._encoder = Path(embeddings), threshold, dict[str, Any]()
        self._subsets: dict[Subset, dict[str, np.ndarray]] = {}
        ids = [(subset, name) for subset in id_subsets for name in self._embedded(subset)]
        if not ids:
            raise DataError(
                "no ID image has an embedding, so similarity to ID is undefined", file=self._folder
            )
        others = [
            (subset, name)
            for subset in known
            for name in self._embedded(subset)
            if name in known[subset]
        ]
        self._ids = len(ids)
        self._names = [(*subset, name) for subset, name in (*ids, *others)]
        self._vectors = np.stack(
            [self._embedded(subset)[name] for subset, name in (*ids, *others)]
        ).astype(np.float32)
        self._taken: list[np.ndarray] = []

    def compare(self, dataset: str, subset: str, image_id: str) -> Resemblance | None:
        """The images most similar to an image; None when it has no embedding."""
        if (found := self._embedded((dataset, subset)).get(image_id)) is None:
            return None
        vector = found.astype(np.float32)
        cosines = np.append(self._vectors @ vector, [taken @ vector for taken in self._taken])
        nearest, best = int(cosines[: self._ids].argmax()), int(cosines.argmax())
        repeats = " ".join(self._names[best]) if cosines[best] >= self._threshold else ""
        return Resemblance(
            self._names[nearest][2], float(np.clip(cosines[nearest], -1, 1)), repeats
        )

    def take(self, dataset: str, subset: str, image_id: str) -> None:
        """Adds an image to the known ones."""
        if (found := self._embedded((dataset, subset)).get(image_id)) is not None:
            self._taken.append(found.astype(np.float32))
            self._names.append((dataset, subset, image_id))

    def _embedded(self, subset: Subset) -> dict[str, np.ndarray]:
        """Embedding of each image of a subset."""
        if subset not in self._subsets:
            folder = EmbeddingsFolder(inside(self._folder, "/".join(subset)))
            self._encoder = self._encoder or folder.info.encoder
            if folder.info.encoder != self._encoder:
                problem = f"embedded by {folder.info.encoder}, others by {self._encoder}; run `embed` again"
                raise DataError(problem, file=folder.path)
            stored = folder.read()
            self._subsets[subset] = dict(zip(stored.image_id, stored.embedding, strict=True))
        return self._subsets[subset]
