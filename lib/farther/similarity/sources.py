"""A benchmark's splits joined with the embeddings of the datasets that they were drawn from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from farther.errors import DataError
from farther.similarity.embeddings import EmbeddingsFolder, NameEmbeddings
from farther.tables import Images, Objects
from farther.tables.files import inside

Distance = Literal["ID", "near", "far", "farther"]


@dataclass(frozen=True)
class SplitSource:
    """Where the images of a split come from.

    Args:
        name: The split.
        dataset, subset: Where its images come from.
        distance: How far from ID the benchmark's rules put it; "ID" for the ID dataset's own.
    """

    name: str
    dataset: str
    subset: str
    distance: Distance


@dataclass(frozen=True)
class EmbeddedSplit:
    """A split and the embeddings of its images; images without one (they could not be read) are left out.

    Args:
        source: Which split.
        image_id: ndarray of shape (N,), str.
        digest: ndarray of shape (N,), str: names of the files' contents.
        vectors: ndarray of shape (N, D), rows of length 1.
        without: Number of images that have no embedding.
    """

    source: SplitSource
    image_id: np.ndarray
    digest: np.ndarray
    vectors: np.ndarray
    without: int

    @property
    def name(self) -> str:
        """The split's name."""
        return self.source.name

    def __len__(self) -> int:
        return len(self.image_id)


@dataclass(frozen=True)
class SimilarityFiles:
    """Where splits, embeddings and class names lie.

    Args:
        splits: Folder of the benchmark's splits, as `curate` writes them.
        embeddings: Folder of the embeddings of all datasets, as `embed` writes them.
    """

    splits: Path
    embeddings: Path

    def split(self, source: SplitSource) -> EmbeddedSplit:
        """A split with its embeddings, in the order of its images table.

        Raises:
            DataError: the dataset was not embedded, or not by the CLIP that read these files.
        """
        images = Images.read(inside(self.splits, source.name) / "images.parquet")
        folder = EmbeddingsFolder(self._dataset(source.dataset) / source.subset)
        stored = folder.read()
        row_of = {image_id: row for row, image_id in enumerate(stored.image_id)}
        rows = np.array([row_of.get(image_id, -1) for image_id in images.image_id], dtype=np.int64)
        failed = {failure["image_id"] for failure in folder.info["failures"]}
        for row in np.flatnonzero(rows < 0):
            if images.image_id[row] not in failed:
                problem = f"image {images.image_id[row]!r} of split {source.name!r} has no embedding; run `embed` again"
                raise DataError(problem, file=folder.path)
        found = images[rows >= 0]
        vectors = stored.embedding[rows[rows >= 0]]
        return EmbeddedSplit(source, found.image_id, found.digest, vectors, int(np.sum(rows < 0)))

    def objects(self, source: SplitSource) -> Objects:
        """The objects of a split."""
        return Objects.read(inside(self.splits, source.name) / "objects.parquet")

    def names(self, dataset: str) -> dict[str, np.ndarray]:
        """Embedding of each of a dataset's class names."""
        table = NameEmbeddings.read(self._dataset(dataset) / "names.parquet")
        return dict(zip(table.name, table.embedding.astype(np.float32), strict=True))

    def encoder(self, source: SplitSource) -> dict[str, object]:
        """What embedded the split's dataset: the header's `encoder`."""
        return EmbeddingsFolder(self._dataset(source.dataset) / source.subset).info["encoder"]

    def _dataset(self, dataset: str) -> Path:
        folder = inside(self.embeddings, dataset)
        if not folder.is_dir():
            raise DataError(f"dataset {dataset!r} has no embeddings; run `embed` for it", file=folder)
        return folder
