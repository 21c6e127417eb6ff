"""A benchmark's splits joined with the embeddings of their datasets."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from farther.errors import DataError
from farther.similarity.embeddings import EmbeddingsFolder, NameEmbeddings
from farther.similarity.nearest import vectors as vectors_of
from farther.tables import Images, Objects
from farther.tables.arguments import instance, texts
from farther.tables.files import inside
from farther.terms import SplitDistance


@dataclass(frozen=True)
class SplitSource:
    """Origin and distance of the images of a split.

    Args:
        name: The split.
        dataset, subset: Origin of its images.
        distance: Distance to ID by the benchmark's rules; "ID" for splits of the ID dataset.
    """

    name: str
    dataset: str
    subset: str
    distance: SplitDistance


@dataclass(frozen=True)
class EmbeddedSplit:
    """A split and the embeddings of its images.

    Images that could not be read have no embedding and are left out.

    Args:
        source: The split.
        image_id: ndarray of shape (N,), str.
        digest: ndarray of shape (N,), str: digests of the files.
        vectors: ndarray of shape (N, D), rows of length 1.

    Raises:
        DataError: a value is of another type or length; names it.
    """

    source: SplitSource
    image_id: np.ndarray
    digest: np.ndarray
    vectors: np.ndarray

    def __post_init__(self) -> None:
        instance(self.source, SplitSource, "source")
        image_id = texts(self.image_id, "image_id")
        count = len(image_id)
        object.__setattr__(self, "image_id", image_id)
        object.__setattr__(self, "digest", texts(self.digest, "digest", length=count))
        rows = vectors_of(self.vectors, "vectors", count)
        object.__setattr__(self, "vectors", rows)

    @property
    def name(self) -> str:
        """The split's name."""
        return self.source.name

    def __len__(self) -> int:
        return len(self.image_id)


@dataclass(frozen=True)
class SimilarityFiles:
    """Folders of splits, embeddings and class names.

    Args:
        splits: Folder of the benchmark's splits, as `curate` writes them.
        embeddings: Folder of the embeddings of all datasets, as `embed` writes them.
    """

    splits: Path
    embeddings: Path

    def split(self, source: SplitSource) -> EmbeddedSplit:
        """A split with its embeddings, in the order of its images table.

        Raises:
            DataError: the dataset was not embedded, or without one of the images.
        """
        images = Images.read(inside(self.splits, source.name) / "images.parquet")
        folder = self._subset(source)
        stored = folder.read()
        row_by_image = stored.frame.select("image_id", row=pl.int_range(pl.len()))
        joined = images.frame.join(row_by_image, on="image_id", how="left", maintain_order="left")
        unreadable = [failure["image_id"] for failure in folder.info.failures]
        missing = joined.filter(pl.col("row").is_null(), ~pl.col("image_id").is_in(unreadable))
        if missing.height:
            problem = (
                f"image {missing['image_id'][0]!r} of split {source.name!r} has no embedding; "
                "run `embed` again"
            )
            raise DataError(problem, file=folder.path)
        embedded = joined.drop_nulls("row")
        return EmbeddedSplit(
            source,
            image_id=embedded["image_id"].to_numpy(),
            digest=embedded["digest"].to_numpy(),
            vectors=stored.embedding[embedded["row"].to_numpy()],
        )

    def objects(self, source: SplitSource) -> Objects:
        """The objects of a split."""
        return Objects.read(inside(self.splits, source.name) / "objects.parquet")

    def names(self, dataset: str) -> dict[str, np.ndarray]:
        """Embedding of each class name of a dataset."""
        table = NameEmbeddings.read(self._dataset(dataset) / "names.parquet")
        return dict(zip(table.name, table.embedding.astype(np.float32), strict=True))

    def encoder(self, source: SplitSource) -> dict[str, object]:
        """The encoder that embedded the split's dataset, from the header."""
        return self._subset(source).info.encoder

    def _subset(self, source: SplitSource) -> EmbeddingsFolder:
        """Embeddings of the subset that a split's images are from."""
        return EmbeddingsFolder(self._dataset(source.dataset) / source.subset)

    def _dataset(self, dataset: str) -> Path:
        folder = inside(self.embeddings, dataset)
        if not folder.is_dir():
            raise DataError(
                f"dataset {dataset!r} has no embeddings; run `embed` for it", file=folder
            )
        return folder
