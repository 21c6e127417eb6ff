"""CLIP embeddings of the images and class names of a dataset.

Only what changed is computed again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass as plain_dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from farther.errors import DataError
from farther.images.clip import Encoder, EncoderParams
from farther.images.job import cache_key
from farther.images.model import Model
from farther.images.plan import StreamParams
from farther.images.stream import stream
from farther.incremental.code import package_digest
from farther.incremental.keyed import Keyed, key_of
from farther.naming.registry import STRICT, Parameters
from farther.similarity.embeddings import (
    Embeddings,
    EmbeddingsFolder,
    EmbeddingsWriter,
    NameEmbeddings,
)
from farther.tables import Images
from farther.tables.folders import listed
from farther.tables.schema import read_typed
from farther.tables.stored import DatasetCategories
from farther.text.terminal import say

NAMES = "names.parquet"


@dataclass(config=STRICT, kw_only=True)
class EmbedParams(StreamParams):
    """How images go through CLIP.

    All images have one shape once they are prepared, so batches follow the table.

    Args:
        stored: Precision of the stored embeddings; float16 changes a cosine by less than 0.001.
    """

    SECTION: ClassVar[str] = "embed.images"

    batch_size: Annotated[int, Field(ge=1)] = 64
    shard_images: Annotated[int, Field(ge=1)] = 4096
    batches: Literal["similar shape", "table"] = "table"
    stored: Literal["float16", "float32"] = "float16"


@dataclass(config=STRICT, kw_only=True)
class EmbedSection(Parameters):
    """The CLIP that embeds all images and class names: section `embed` of params.yaml.

    Args:
        weights: File or folder of its weights, which DVC tracks: `embed` and `infer` rerun when
            they change. `encoder` says how they are loaded.
        encoder: The CLIP, and its prompt for class names.
        images: How images go through it.
    """

    weights: Path | None = None
    encoder: EncoderParams
    images: EmbedParams = Field(default_factory=EmbedParams)


@plain_dataclass(frozen=True)
class Embedding(Model):
    """CLIP as a model of the engine: one embedding per image."""

    encoder: Encoder
    stored: str

    modules: ClassVar[tuple[str, ...]] = ("farther.images.clip",)

    @property
    def device(self) -> str:  # type: ignore[override]
        """See `Model`."""
        return self.encoder.params.device

    def identity(self) -> dict[str, Any]:
        """See `Model.identity`."""
        return self.encoder.identity

    def load(self) -> Any:
        """See `Model.load`."""
        return self.encoder.network

    def runs_on_cpu(self) -> bool:
        """See `Model.runs_on_cpu`."""
        return self.encoder.device.type == "cpu"

    def prepare(self, image: np.ndarray, image_id: str) -> Any:
        """See `Model.prepare`."""
        return self.encoder.preprocessing.prepare(image)

    def forward(self, prepared: list, image_ids: list[str]) -> Embeddings:
        """See `Model.forward`."""
        return Embeddings(
            image_id=image_ids, embedding=self.encoder.images(prepared).astype(self.stored)
        )

    def empty(self) -> Embeddings:
        """See `Model.empty`."""
        return Embeddings.empty()


def embed_dataset(
    encoder: Encoder,
    tables: str | Path,
    root: Path,
    out: str | Path,
    work: str | Path,
    params: EmbedParams | None = None,
    *,
    progress: bool = True,
    log: Callable[[str], None] = say,
) -> dict[str, EmbeddingsFolder]:
    """Embeds the images of an ingested dataset and the names of its categories.

    Only subsets whose cache key changed are embedded again.

    Args:
        encoder: The CLIP.
        tables: Folder that `ingest` wrote: `categories.json`, and `images.parquet` in a sub-folder
            for each subset.
        root: Folder of the dataset's files.
        out, work: Folders of the results and of unfinished work; each subset has a sub-folder of
            its name. The names' embeddings go to `names.parquet`.
        params: Parameters of the stream of images.
        progress: Whether to show images per second and the time left, on stderr.
        log: Called with one line per subset.

    Returns:
        The folder of each subset.

    Raises:
        DataError: a table is absent or damaged, or see `embed`.
    """
    params = params or EmbedParams()
    tables = Path(tables)
    out = Path(out)
    work = Path(work)
    subsets = {file.parent.name: Images.read(file) for file in listed(tables, "*/images.parquet")}
    if not subsets:
        raise DataError(
            "no subset here: expected sub-folders with images.parquet, as ingest writes them",
            file=tables,
        )
    names = read_typed(DatasetCategories, tables / "categories.json").categories
    model = Embedding(encoder, params.stored)
    key_by_item = {subset: cache_key(model, images, params) for subset, images in subsets.items()}
    names_inputs = {"model": model.identity(), "code": package_digest("similarity"), "names": names}
    key_by_item[NAMES] = key_of([], names_inputs)

    def embed_item(item: str, to: Path) -> str:
        """Embeds a subset or the names, and returns what was embedded."""
        if item == NAMES:
            NameEmbeddings(name=names, embedding=encoder.names(names)).write(to)
            return f"{len(names)} names"
        images = subsets[item]
        folder = embed(encoder, images, root, to, work / item, params, progress=progress)
        return f"{len(images)} images, {len(folder.info.failures)} failures"

    def log_item(line: str) -> None:
        log(f"{tables.name} {line}")

    Keyed(out).update(key_by_item, embed_item, log_item)
    return {subset: EmbeddingsFolder(out / subset) for subset in subsets}


def embed(
    encoder: Encoder,
    images: Images,
    root: Path,
    out: str | Path,
    work: str | Path,
    params: EmbedParams | None = None,
    *,
    progress: bool = True,
) -> EmbeddingsFolder:
    """Embeds images and writes a folder of embeddings.

    See `farther.images.stream.stream` for the order of rows, images that cannot be used, and
    resuming.

    Args:
        encoder: The CLIP.
        images: The images.
        root: Folder of their files.
        out: The folder to be; it is replaced when all images are embedded.
        work: Folder for unfinished work, on the same file system.
        params: Parameters of the stream of images.
        progress: Whether to show images per second and the time left, on stderr.

    Raises:
        ParameterError, DataError, FartherError: see `farther.images.stream.stream`.
    """
    params = params or EmbedParams()
    model = Embedding(encoder, params.stored)
    writer = EmbeddingsWriter(out, encoder.identity, work, cache_key(model, images, params))
    root_by_dataset = dict.fromkeys(images.dataset, root)
    stream(model, images, root_by_dataset, writer, params, progress=progress)
    return EmbeddingsFolder(out)
