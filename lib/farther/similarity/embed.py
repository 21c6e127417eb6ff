"""Embeds the images of a dataset: streamed, resumed after a kill, and left alone where nothing changed."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass
from tqdm import tqdm

from farther.detectors.inference import InferenceParams
from farther.errors import DataError
from farther.images import read as pictures
from farther.images.prepare import Batch, Preparation, Unusable, by_shard, one_thread, spread
from farther.registry import STRICT
from farther.similarity.embeddings import VERSION, Embeddings, EmbeddingsFolder, NameEmbeddings
from farther.similarity.encoder import Encoder
from farther.tables import Images
from farther.tables.files import digest, inside, read_json, write_aside, write_json

Failure = dict[str, str]


@dataclass(config=STRICT, kw_only=True)
class EmbedParams:
    """How images are gone through.

    Args:
        batch_size: Images that the network sees at once.
        workers: See `farther.detectors.inference.InferenceParams`.
        shard_images: Images in one shard, which is what is written at once and kept after a kill.
        stored: Precision of the stored numbers; float16 moves a cosine by less than 0.001.
        exif, max_pixels: See `farther.images.read.load`.
        max_failures: Fraction of the images that may be unusable before the run ends in an error.
    """

    batch_size: Annotated[int, Field(ge=1)] = 64
    workers: Annotated[int, Field(ge=0)] | None = None
    shard_images: Annotated[int, Field(ge=1)] = 4096
    stored: Literal["float16", "float32"] = "float16"
    exif: pictures.Exif = "ignore"
    max_pixels: Annotated[int, Field(ge=1)] = pictures.MAX_PIXELS
    max_failures: Annotated[float, Field(ge=0, le=1)] = 0.01

    def processes(self, cores_left: int) -> int:
        """How many worker processes to start, if so many cores are to be left to this one."""
        return InferenceParams(workers=self.workers).processes(cores_left)


def embed_dataset(
    encoder: Encoder,
    tables: str | Path,
    root: Path,
    out: str | Path,
    work: str | Path,
    params: EmbedParams | None = None,
    *,
    progress: bool = True,
    say: Callable[[str], None] = print,
) -> dict[str, EmbeddingsFolder]:
    """Embeds all subsets of an ingested dataset and the names of its categories, but for what did not change.

    Args:
        encoder: The CLIP.
        tables: Folder that `ingest` wrote: `categories.json`, and `images.parquet` in a sub-folder for each subset.
        root: Folder that the dataset's files lie in.
        out: The embeddings of a subset go to the sub-folder of the same name, those of the categories' names to
            `names.parquet`.
        work: Unfinished work, on the same file system.
        params: How to go through the images.
        progress: Whether to show images per second and the time left, on stderr.
        say: Takes a line about each subset.

    Returns:
        The folder of each subset.

    Raises:
        DataError: a table is absent or damaged, or see `embed`.
    """
    params = params or EmbedParams()
    tables, out, work = Path(tables), Path(out), Path(work)
    subsets = sorted(file.parent.name for file in tables.glob("*/images.parquet"))
    if not subsets:
        raise DataError("no subset here: expected sub-folders with images.parquet, as ingest writes them", file=tables)
    for other in [entry for entry in sorted(out.glob("*/embeddings.json")) if entry.parent.name not in subsets]:
        shutil.rmtree(other.parent)
        say(f"{tables.name} {other.parent.name}: removed, it is no subset any more")
    _embed_names(encoder, read_json(tables / "categories.json"), tables / "categories.json", out / "names.parquet")
    folders = {}
    for subset in subsets:
        images = Images.read(tables / subset / "images.parquet")
        if _stored_key(out / subset) == _key(encoder, images, params):
            folders[subset] = EmbeddingsFolder(out / subset)
            say(f"{tables.name} {subset}: unchanged")
        else:
            folders[subset] = embed(encoder, images, root, out / subset, work / subset, params, progress=progress)
            say(f"{tables.name} {subset}: {len(images)} images, {len(folders[subset].info['failures'])} failures")
    return folders


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

    Rows stand in the order of the table. The same call after a kill keeps the shards that were finished, provided that
    images, model and parameters are the same. An image that cannot be read is left out and listed in `failures`.

    Args:
        encoder: The CLIP.
        images: The images.
        root: Folder that their files lie in.
        out: The folder to be; what stands there is replaced when all is done.
        work: Folder for unfinished work, on the same file system.
        params: How to go through the images.
        progress: Whether to show images per second and the time left, on stderr.

    Raises:
        DataError: more images failed than `max_failures` allows, or a file name leads out of its root.
        FartherError: a worker process was killed from outside.
    """
    params = params or EmbedParams()
    out, work = Path(out), Path(work)
    key = _key(encoder, images, params)
    shards = range(-(-len(images) // params.shard_images))
    rows = _start(work, key)
    todo = [shard for shard in shards if not _is_finished(work, shard)]
    done = len(images) - sum(len(_rows(shard, images, params)) for shard in todo)
    embedding = Embedding(encoder, Preparation(encoder.preprocessing, params.exif, params.max_pixels), params.stored)
    with (
        closing(_embedded(embedding, _batches(images, root, todo, params), params)) as stream,
        tqdm(total=len(images), initial=done, desc=out.name, unit="image", disable=not progress) as bar,
    ):
        for shard, batches in by_shard(stream, lambda n: -(-len(_rows(n, images, params)) // params.batch_size)):
            found, failures = _shard(batches, bar.update)
            found.write(rows / _file(shard))
            write_json(work / f"part-{shard:05d}.json", failures)
    failures = [failure for shard in shards for failure in read_json(work / f"part-{shard:05d}.json")]
    _check_failures(failures, len(images), params)
    names = [_file(shard) for shard in shards]
    header = {"key": key, "encoder": encoder.identity, "images": len(images), "failures": failures, "shards": names}
    write_json(rows / "embeddings.json", {"format": "farther.embeddings", "version": VERSION, **header})
    with write_aside(out) as aside:
        rows.replace(aside)
    shutil.rmtree(work)
    return EmbeddingsFolder(out)


def _start(work: Path, key: str) -> Path:
    """Makes the work folder, empty unless an earlier run of the same key left shards there; gives that of the rows."""
    started = work / "started.json"
    if not started.exists() or read_json(started) != {"key": key}:
        shutil.rmtree(work, ignore_errors=True)
    (work / "rows").mkdir(parents=True, exist_ok=True)
    write_json(started, {"key": key})
    return work / "rows"


def _file(shard: int) -> str:
    return f"part-{shard:05d}.parquet"


def _is_finished(work: Path, shard: int) -> bool:
    return (work / f"part-{shard:05d}.json").exists() and (work / "rows" / _file(shard)).exists()


def _rows(shard: int, images: Images, params: EmbedParams) -> range:
    """Rows of the images table that make a shard."""
    first = shard * params.shard_images
    return range(first, min(first + params.shard_images, len(images)))


def _batches(images: Images, root: Path, shards: Iterable[int], params: EmbedParams) -> Iterator[Batch]:
    for shard in shards:
        whole = _rows(shard, images, params)
        for start in range(0, len(whole), params.batch_size):
            rows = whole[start : start + params.batch_size]
            yield Batch(
                shard,
                [images.image_id[row] for row in rows],
                [inside(root, images.file[row]) for row in rows],
                [(int(images.width[row]), int(images.height[row])) for row in rows],
            )


class Part(NamedTuple):
    """What came of a batch.

    Args:
        image_ids: The images that were embedded.
        vectors: Shape (images, D).
        failures: The others.
    """

    image_ids: list[str]
    vectors: np.ndarray | None
    failures: list[Failure]


@dataclasses.dataclass(frozen=True)
class Embedding:
    """Decodes, prepares and embeds: a batch of files → embeddings in the precision `stored`."""

    encoder: Encoder
    preparation: Preparation
    stored: str

    def __call__(self, batch: Batch) -> Part:
        """Embeds a batch of files."""
        return self.of(batch, self.preparation(batch))

    def of(self, batch: Batch, items: list[Any]) -> Part:
        """Embeds a batch whose images are prepared."""
        pairs = list(zip(batch.image_ids, items, strict=True))
        failures = [{"image_id": name, "reason": item.reason} for name, item in pairs if isinstance(item, Unusable)]
        usable = [(name, item) for name, item in pairs if not isinstance(item, Unusable)]
        if not usable:
            return Part([], None, failures)
        vectors = self.encoder.images([item for _, item in usable]).astype(self.stored)
        return Part([name for name, _ in usable], vectors, failures)


def _embedded(
    embedding: Embedding, batches: Iterable[Batch], params: EmbedParams
) -> Generator[tuple[Batch, Part], None, None]:
    """On a GPU the network runs here, beside processes that prepare; on the CPU in each of them, on one core."""
    if embedding.encoder.device.type == "cpu":
        with one_thread():
            yield from spread(embedding, batches, params.processes(cores_left=0))
    else:
        with closing(spread(embedding.preparation, batches, params.processes(cores_left=1))) as stream:
            for batch, items in stream:
                yield batch, embedding.of(batch, items)


def _shard(batches: Iterable[tuple[Batch, Part]], count: Callable[[int], Any]) -> tuple[Embeddings, list[Failure]]:
    ids: list[str] = []
    vectors: list[np.ndarray] = []
    failures: list[Failure] = []
    for batch, part in batches:
        ids += part.image_ids
        vectors += [] if part.vectors is None else [part.vectors]
        failures += part.failures
        count(len(batch))
    if not vectors:
        return Embeddings.empty(), failures
    return Embeddings(image_id=ids, embedding=np.concatenate(vectors)), failures


def _check_failures(failures: list[Failure], images: int, params: EmbedParams) -> None:
    if len(failures) > params.max_failures * images:
        first = "\n".join(f"  {failure['image_id']}: {failure['reason']}" for failure in failures[:5])
        raise DataError(
            f"{len(failures)} of {images} images cannot be read, more than max_failures = {params.max_failures:g} "
            f"allows. Mend them and run `ingest` again, or raise it. The first:\n{first}"
        )


def _embed_names(encoder: Encoder, categories: Any, source: Path, out: Path) -> None:
    names = categories.get("categories") if isinstance(categories, dict) else None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise DataError("expected a list of names", file=source, field="categories")
    NameEmbeddings(name=names, embedding=encoder.names(names)).write(out)


def _key(encoder: Encoder, images: Images, params: EmbedParams) -> str:
    """Names all that a folder of embeddings is made from."""
    shaping = [params.batch_size, params.shard_images, params.stored, params.exif, params.max_pixels]
    columns = (json.dumps(images.columns()[name].tolist()) for name in ("image_id", "file", "digest"))
    return digest(json.dumps([VERSION, encoder.identity, shaping], sort_keys=True), *columns)


def _stored_key(folder: Path) -> str | None:
    """The key of a folder of embeddings; None where there is no whole one."""
    try:
        found = EmbeddingsFolder(folder)
    except DataError:
        return None
    return found.key if all(shard.is_file() for shard in found.shards) else None
