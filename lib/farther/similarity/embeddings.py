"""The table of embeddings, and the folder that holds those of one subset of a dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from pydantic import NonNegativeInt

from farther.errors import DataError
from farther.tables import VECTOR, Column, Table
from farther.tables.documents import read_json
from farther.tables.files import inside
from farther.tables.schema import Schema, check
from farther.tables.shards import ShardWriter

#: Version of the folder's layout.
VERSION = 1

#: How far the length of a stored embedding may be from 1: float16 rounds.
LENGTH_TOLERANCE = 0.01


class Embeddings(Table):
    """One row per image.

    Columns:
        image_id: The image.
        embedding: Its CLIP embedding, D × float16 or float32, of length 1.
    """

    image_id = Column(pl.String, unique=True)
    embedding = Column(VECTOR)

    def _check(self, source: str | Path | None) -> None:
        super()._check(source)
        _check_lengths(self.embedding, source)


class NameEmbeddings(Table):
    """One row per class name.

    Columns:
        name: The name, as its dataset writes it.
        embedding: CLIP's embedding of the sentence that names it, D × float32, of length 1.
    """

    name = Column(pl.String, unique=True)
    embedding = Column(VECTOR)

    def _check(self, source: str | Path | None) -> None:
        super()._check(source)
        _check_lengths(self.embedding, source)


class _EmbeddingsInfo(Schema):
    """Fields and types of `embeddings.json`."""

    key: str
    encoder: dict[str, Any]
    images: NonNegativeInt
    failures: list[dict[str, str]]
    shards: list[str]


class EmbeddingsFolder:
    """The embeddings of one subset of a dataset, as `farther.similarity.embed` writes them.

    Args:
        path: The folder: `embeddings.json` and the shards that it lists.

    Attributes:
        info: Content of `embeddings.json`: `key`, `encoder` (model, digest of its weights, preprocessing), `images`,
            `failures`, `shards`.

    Raises:
        DataError: the header is absent, damaged, or of another version.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        source = self.path / "embeddings.json"
        info = read_json(source)
        if not isinstance(info, dict) or info.get("format") != "farther.embeddings":
            raise DataError("not the header of a folder of embeddings", file=source, field="format")
        if info.get("version") != VERSION:
            found = f"version {info.get('version')!r}, this farther reads {VERSION}"
            raise DataError(found, file=source, field="version")
        check(_EmbeddingsInfo, info, source)
        self.info: dict[str, Any] = info

    @property
    def key(self) -> str:
        """Digest of all that the embeddings were made from."""
        return self.info["key"]

    @property
    def shards(self) -> list[Path]:
        """The files with the rows, in order."""
        return [inside(self.path, name) for name in self.info["shards"]]

    def read(self) -> Embeddings:
        """All rows, in the order of the images table; images that could not be read have none.

        Raises:
            DataError: a shard is absent or damaged; names shard, row and field.
        """
        parts = [part for shard in self.shards if len(part := Embeddings.read(shard))]
        return Embeddings.concatenate(parts) if parts else Embeddings.empty()


class EmbeddingsWriter(ShardWriter):
    """Writes a folder of embeddings shard by shard; a killed run resumes.

    Args:
        path: The folder to be.
        encoder: The CLIP, see `Encoder.identity`.
        work, key: See `ShardWriter`.
    """

    DESCRIPTION = "embeddings.json"

    def __init__(self, path: str | Path, encoder: dict[str, Any], work: str | Path, key: str):
        super().__init__(path, key, work)
        self._encoder = encoder

    def _describe(self, parts: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "format": "farther.embeddings",
            "version": VERSION,
            "key": self.key,
            "encoder": self._encoder,
            "images": sum(part["images"] for part in parts),
            "failures": [failure for part in parts for failure in part["failures"]],
            "shards": [part["file"] for part in parts],
        }


def _check_lengths(vectors: np.ndarray, source: str | Path | None) -> None:
    lengths = np.linalg.norm(vectors.astype(np.float32, copy=False), axis=1)
    wrong = np.flatnonzero(np.abs(lengths - 1) > LENGTH_TOLERANCE)
    if len(wrong):
        row = int(wrong[0])
        problem = f"length {lengths[row]:.4g}, expected 1: a cosine is a product of vectors of length 1"
        raise DataError(problem, file=source, row=row, field="embedding")
