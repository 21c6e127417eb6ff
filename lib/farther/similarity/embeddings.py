"""The table of embeddings, and the folder that holds those of one subset of a dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import polars as pl
from pydantic import NonNegativeInt

from farther.tables import VECTOR, Column, Table
from farther.tables.files import inside
from farther.tables.schema import Schema, read_typed
from farther.tables.shards import ShardWriter

#: Format and version of the folder's layout, as its header names them.
FORMAT, VERSION = "farther.embeddings", 1


class Embeddings(Table):
    """One row per image.

    Columns:
        image_id: The image.
        embedding: Its CLIP embedding, D × float16 or float32, of length 1.
    """

    image_id = Column(pl.String, unique=True)
    embedding = Column(VECTOR)


class NameEmbeddings(Table):
    """One row per class name.

    Columns:
        name: The name, as its dataset writes it.
        embedding: CLIP's embedding of the sentence that names it, D × float32, of length 1.
    """

    name = Column(pl.String, unique=True)
    embedding = Column(VECTOR)


class EmbeddingsInfo(Schema):
    """Content of `embeddings.json`.

    Args:
        format, version: See `FORMAT`.
        encoder: Model, digest of its weights, preprocessing.
        images: Number of rows.
        failures: `image_id` and reason of each image that could not be read.
        shards: The files with the rows, in order.
    """

    format: Literal["farther.embeddings"]
    version: Literal[1]
    encoder: dict[str, Any]
    images: NonNegativeInt
    failures: list[dict[str, str]]
    shards: list[str]


class EmbeddingsFolder:
    """The embeddings of one subset of a dataset, as `farther.similarity.embed` writes them.

    Args:
        path: The folder: `embeddings.json` and the shards that it lists.

    Attributes:
        info: Content of `embeddings.json`.

    Raises:
        DataError: the header is absent, damaged, or of another version.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self.info = read_typed(EmbeddingsInfo, self.path / "embeddings.json")

    @property
    def shards(self) -> list[Path]:
        """The files with the rows, in order."""
        return [inside(self.path, name) for name in self.info.shards]

    def read(self) -> Embeddings:
        """All rows, in the order of the images table; images that could not be read have none.

        Raises:
            DataError: a shard is absent or damaged; names shard, row and field.
        """
        parts = [Embeddings.read(shard) for shard in self.shards]
        parts_with_rows = [part for part in parts if len(part)]
        if not parts_with_rows:
            return Embeddings.empty()
        return Embeddings.concatenate(parts_with_rows)


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
        failures = []
        for part in parts:
            failures.extend(part["failures"])
        return {
            "format": FORMAT,
            "version": VERSION,
            "encoder": self._encoder,
            "images": sum(part["images"] for part in parts),
            "failures": failures,
            "shards": [part["file"] for part in parts],
        }
