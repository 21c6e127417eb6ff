"""The most similar image of a growing set, one query at a time: embeddings of a pool are read only where needed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from farther.errors import DataError
from farther.similarity.embeddings import EmbeddingsFolder
from farther.tables import VECTOR, Column, Table
from farther.tables.files import inside

#: A subset of a dataset.
Subset = tuple[str, str]


class EmbeddedImages(Table):
    """One row per image with an embedding.

    Columns:
        dataset, subset, image_id: The image.
        embedding: Its CLIP embedding, D × float16 or float32, of length 1.
    """

    dataset = Column(pl.String)
    subset = Column(pl.String)
    image_id = Column(pl.String)
    embedding = Column(VECTOR)


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


def not_embedded(embeddings: str | Path, subsets: Iterable[Subset]) -> list[str]:
    """The subsets that have no embeddings, as `dataset subset`, each once."""
    wanted = dict.fromkeys(subsets)
    headers = {subset: inside(embeddings, "/".join(subset)) / "embeddings.json" for subset in wanted}
    return [" ".join(subset) for subset, header in headers.items() if not header.exists()]


class Lookalikes:
    """Compares images with those of a benchmark, and with images added by `take`.

    Args:
        embeddings: Folder of the embeddings of all datasets, as `embed` writes them.
        id_subsets: Subsets of the ID dataset.
        known: Other subsets, each with its images in the benchmark.
        threshold: Lowest cosine of an image that repeats another.

    Attributes:
        known: The images to compare with, those of the ID dataset first.

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
        self._subsets: dict[Subset, EmbeddedImages] = {}
        self._rows: dict[Subset, dict[str, int]] = {}
        self._encoder: object = None
        ids = [self._subset(subset) for subset in id_subsets]
        others = []
        for subset, names in known.items():
            images = self._subset(subset)
            others.append(images[images.frame["image_id"].is_in(list(names))])
        self._ids = sum(map(len, ids))
        if not self._ids:
            raise DataError("no ID image has an embedding, so similarity to ID is undefined", file=self._folder)
        self.known = EmbeddedImages.concatenate([part for part in (*ids, *others) if len(part)])
        self._vectors = self.known.embedding.astype(np.float32)
        self._taken: list[np.ndarray] = []

    def compare(self, dataset: str, subset: str, image_id: str) -> Resemblance | None:
        """The images most similar to an image; None when it has no embedding."""
        found = self._image((dataset, subset), image_id)
        if found is None:
            return None
        vector = found.embedding[0].astype(np.float32)
        cosines = self._vectors @ vector
        nearest = int(cosines[: self._ids].argmax())
        if self._taken:
            cosines = np.concatenate([cosines, np.stack(self._taken) @ vector])
        best = int(cosines.argmax())
        names = self.known.frame.select("dataset", "subset", "image_id")
        repeats = " ".join(names.row(best)) if cosines[best] >= self._threshold else ""
        return Resemblance(names["image_id"][nearest], float(np.clip(cosines[nearest], -1, 1)), repeats)

    def take(self, dataset: str, subset: str, image_id: str) -> None:
        """Adds an image to the known ones."""
        found = self._image((dataset, subset), image_id)
        if found is not None:
            self._taken.append(found.embedding[0].astype(np.float32))
            self.known = self.known.with_frame(self.known.frame.vstack(found.frame))

    def _image(self, subset: Subset, image_id: str) -> EmbeddedImages | None:
        images = self._subset(subset)
        row = self._rows[subset].get(image_id)
        return None if row is None else images[row : row + 1]

    def _subset(self, subset: Subset) -> EmbeddedImages:
        if subset not in self._subsets:
            folder = EmbeddingsFolder(inside(self._folder, "/".join(subset)))
            encoder = folder.info["encoder"]
            if self._encoder is not None and encoder != self._encoder:
                problem = f"embedded by {encoder}, others by {self._encoder}; run `embed` again"
                raise DataError(problem, file=folder.path)
            self._encoder = encoder
            stored = folder.read()
            names = {"dataset": pl.lit(subset[0]), "subset": pl.lit(subset[1])}
            self._subsets[subset] = EmbeddedImages.from_frame(stored.frame.with_columns(**names))
            self._rows[subset] = {name: row for row, name in enumerate(stored.image_id)}
        return self._subsets[subset]
