"""The inference engine: a detector over all images of a table, into a regions folder.

Images are decoded and prepared in worker processes, the network runs in this one, and rows go to disk a shard at a
time, so memory holds one shard and a few batches, however many images there are. A run that was killed goes on where
it stopped and ends in the same bytes.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass
from tqdm import tqdm

from farther.detectors import pictures
from farther.detectors.preparation import Batch, Preparation, Unusable, prepared
from farther.detectors.sources import source_files
from farther.errors import DataError, ParameterError
from farther.registry import STRICT
from farther.tables import Header, Images, Regions, RegionsFolder, RegionsWriter
from farther.tables.files import digest, inside

if TYPE_CHECKING:
    from farther.detectors.base import Detector

#: `region_id` is the row of its image times this, plus its rank among the image's regions.
REGIONS_PER_IMAGE = 1 << 16

Failure = dict[str, str]


@dataclass(config=STRICT, kw_only=True)
class InferenceParams:
    """How the engine goes through the images.

    Args:
        batch_size: Images that the network sees at once. Another size changes numbers by rounding only.
        workers: Processes that decode and prepare; 0 does it in this one. One fewer than there are cores, and at most
            8, unless said otherwise.
        shard_images: Images in one shard, which is what is written at once, kept after a kill, and held in memory.
        batches: Which images of a shard share a batch: those of "similar shape", so that little is padded, or those
            that follow each other in the "table". The order of the rows is that of the table either way.
        exif: See `farther.detectors.pictures.load`.
        max_pixels: Images with more are not decoded and count as failures.
        max_failures: Fraction of the images that may be unusable before the run ends in an error.
    """

    batch_size: Annotated[int, Field(ge=1)] = 16
    workers: Annotated[int, Field(ge=0)] | None = None
    shard_images: Annotated[int, Field(ge=1)] = 512
    batches: Literal["similar shape", "table"] = "similar shape"
    exif: pictures.Exif = "ignore"
    max_pixels: Annotated[int, Field(ge=1)] = pictures.MAX_PIXELS
    max_failures: Annotated[float, Field(ge=0, le=1)] = 0.01

    def shaping(self) -> dict[str, Any]:
        """The parameters that the written folder depends on: not how many processes work, nor what is tolerated."""
        return {name: value for name, value in asdict(self).items() if name not in ("workers", "max_failures")}

    def processes(self) -> int:
        """How many worker processes to start."""
        return min(8, _cores() - 1) if self.workers is None else self.workers


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def infer(
    detector: Detector,
    images: Images,
    roots: Mapping[str, Path],
    out: str | Path,
    work: str | Path,
    params: InferenceParams | None = None,
    *,
    progress: bool = True,
) -> RegionsFolder:
    """Runs a detector over images and writes what it finds as a regions folder.

    Rows stand in the order of the images table, those of one image in the order in which the detector gives them.
    `region_id` is the image's row × 65,536 + the region's rank within the image, so it depends neither on batches nor
    on resuming. The same call after a kill keeps the shards that were finished, provided that images, detector, code
    and parameters are the same, and ends in the same bytes as an undisturbed run.

    An image that cannot be read or prepared, has another size than the table says, or makes the detector answer with
    values that cannot be, is left out and listed in the folder's `failures`. Finished shards whose failed images can be
    read by now are made again.

    Args:
        detector: What finds the regions.
        images: The images.
        roots: Folder of each dataset that the table names.
        out: The regions folder to be; what stands there is replaced when all is done.
        work: Folder for unfinished work, on the same file system.
        params: How to go through the images.
        progress: Whether to show images per second and the time left, on stderr.

    Raises:
        ParameterError: the table names a dataset that has no root.
        DataError: more images failed than `max_failures` allows, or a file name leads out of its root.
        FartherError: a worker process was killed from outside.
    """
    params = params or InferenceParams()
    header = detector.header()
    plan = _Plan(images, roots, params)
    preparation = Preparation(detector, params.exif, params.max_pixels)
    writer = RegionsWriter(out, header, work, _key(detector, header, images, params))
    todo = [shard for shard in range(plan.shards) if not _is_kept(writer, shard, plan, preparation)]
    stream = prepared(preparation, (batch for shard in todo for batch in plan.batches(shard)), params.processes())
    done = len(images) - sum(len(plan.rows(shard)) for shard in todo)
    with (
        closing(stream),
        tqdm(total=len(images), initial=done, desc=Path(out).name, unit="image", disable=not progress) as bar,
    ):
        for shard, batches in itertools.groupby(stream, key=lambda pair: pair[0].shard):
            regions, failures = _shard(detector, header, batches, plan.row_of(shard), bar.update)
            writer.write_shard(shard, regions, len(plan.rows(shard)), failures)
    _check_failures([f for shard in range(plan.shards) for f in writer.failures(shard)], len(images), params)
    writer.close(plan.shards)
    return RegionsFolder(out)


def infer_splits(
    detector: Detector,
    splits: str | Path,
    roots: Mapping[str, Path],
    out: str | Path,
    work: str | Path,
    params: InferenceParams | None = None,
    *,
    progress: bool = True,
    say: Callable[[str], None] = print,
) -> dict[str, RegionsFolder]:
    """Runs a detector over all splits of a benchmark, but for those where nothing changed.

    A split's regions folder keeps a key: a digest of its images table, of the detector's header and last layer, of the
    parameters that shape the rows, and of the source of the engine and of the detector's adapter. Where the key is
    still the same and the folder whole, the split is left as it is. Regions folders of splits that are gone go too.

    Args:
        detector: What finds the regions.
        splits: Folder whose sub-folders are the splits; each holds `images.parquet`.
        roots: Folder of each dataset that the tables name.
        out: The regions of a split go to the sub-folder of the same name.
        work: Unfinished work, likewise.
        params: How to go through the images.
        progress: Whether to show images per second and the time left, on stderr.
        say: Takes a line about each split.

    Returns:
        The regions folder of each split.

    Raises:
        DataError: there is no split, or see `infer`.
    """
    params = params or InferenceParams()
    splits, out, work = Path(splits), Path(out), Path(work)
    names = sorted(entry.name for entry in splits.iterdir() if entry.is_dir()) if splits.is_dir() else []
    if not names:
        raise DataError("no split here: expected sub-folders with images.parquet, as curate writes them", file=splits)
    _remove_others(work, names, "started.json")
    for name in _remove_others(out, names, "regions.json"):
        say(f"{name}: removed, it is no split any more")
    header = detector.header()
    folders = {}
    for name in names:
        images = Images.read(splits / name / "images.parquet")
        if _stored_key(out / name) == _key(detector, header, images, params):
            folders[name] = RegionsFolder(out / name)
            say(f"{name}: unchanged")
        else:
            folders[name] = infer(detector, images, roots, out / name, work / name, params, progress=progress)
            counts = folders[name].info
            say(f"{name}: {counts['images']} images, {counts['regions']} regions, {len(counts['failures'])} failures")
    return folders


class _Plan:
    """Which images go into which shard and batch."""

    def __init__(self, images: Images, roots: Mapping[str, Path], params: InferenceParams):
        unknown = sorted(set(images.dataset) - set(roots))
        if unknown:
            raise ParameterError(f"no root for dataset {unknown[0]!r} of the images. Known: {', '.join(sorted(roots))}")
        self.images = images
        self.roots = roots
        self.params = params
        self.shards = -(-len(images) // params.shard_images)

    def rows(self, shard: int) -> range:
        """Rows of the images table that make a shard."""
        start = shard * self.params.shard_images
        return range(start, min(start + self.params.shard_images, len(self.images)))

    def row_of(self, shard: int) -> dict[str, int]:
        """Row of each image of a shard."""
        return {self.images.image_id[row]: row for row in self.rows(shard)}

    def batches(self, shard: int) -> Iterator[Batch]:
        """The batches of a shard."""
        rows = np.asarray(self.rows(shard))
        if self.params.batches == "similar shape":
            width, height = self.images.width[rows], self.images.height[rows]
            # Detectors resize before they pad, so what must be padded depends on the aspect ratio first.
            rows = rows[np.lexsort((rows, width, width / np.maximum(height, 1)))]
        for start in range(0, len(rows), self.params.batch_size):
            yield self.batch(shard, rows[start : start + self.params.batch_size])

    def batch(self, shard: int, rows: Sequence[int] | np.ndarray) -> Batch:
        """These rows as a batch."""
        images = self.images
        return Batch(
            shard,
            [images.image_id[row] for row in rows],
            [inside(self.roots[images.dataset[row]], images.file[row]) for row in rows],
            [(int(images.width[row]), int(images.height[row])) for row in rows],
        )


def _is_kept(writer: RegionsWriter, shard: int, plan: _Plan, preparation: Preparation) -> bool:
    """Whether a shard is finished, and the images that failed in it would fail again."""
    if not writer.finished(shard):
        return False
    failed = {failure["image_id"] for failure in writer.failures(shard)}
    again = plan.batch(shard, [row for image_id, row in plan.row_of(shard).items() if image_id in failed])
    return all(isinstance(item, Unusable) for item in preparation(again))


def _shard(
    detector: Detector,
    header: Header,
    batches: Iterable[tuple[Batch, list[Any]]],
    row_of: Mapping[str, int],
    count: Callable[[int], Any],
) -> tuple[Regions, list[Failure]]:
    """Rows and failures of one shard, both in the order of the table. `count` hears of each batch that is done."""
    found: list[Regions] = []
    failures: list[Failure] = []
    for batch, items in batches:
        usable = []
        for image_id, item in zip(batch.image_ids, items, strict=True):
            if isinstance(item, Unusable):
                failures.append({"image_id": image_id, "reason": item.reason})
            else:
                usable.append((image_id, item))
        with _inference_mode():
            regions, wrong = _detected(detector, usable)
        found += regions
        failures += wrong
        count(len(batch))
    failures.sort(key=lambda failure: row_of[failure["image_id"]])
    return _assembled(found, row_of, header), failures


def _detected(detector: Detector, usable: Sequence[tuple[str, Any]]) -> tuple[list[Regions], list[Failure]]:
    """What the detector finds. If it answers with values that cannot be, its images are tried one by one."""
    if not usable:
        return [], []
    try:
        return [detector.forward([item for _, item in usable], [image_id for image_id, _ in usable])], []
    except DataError as error:
        if len(usable) == 1:
            return [], [{"image_id": usable[0][0], "reason": f"the detector's answer cannot be used: {error}"}]
    alone = [_detected(detector, [one]) for one in usable]
    return [r for regions, _ in alone for r in regions], [f for _, failures in alone for f in failures]


def _inference_mode() -> AbstractContextManager[Any]:
    """torch's, if the detector uses torch: then it has imported it by now."""
    return sys.modules["torch"].inference_mode() if "torch" in sys.modules else nullcontext()


def _assembled(found: Sequence[Regions], row_of: Mapping[str, int], header: Header) -> Regions:
    """The rows of several batches in the order of the images table, numbered."""
    with_rows = [regions for regions in found if len(regions)]
    if not with_rows:
        # An answer without rows still tells which columns there are.
        return found[0] if found else Regions.empty(header)
    for regions in with_rows:
        if list(regions.columns()) != list(with_rows[0].columns()):
            raise DataError(f"batches differ in their columns: {[list(r.columns()) for r in (regions, with_rows[0])]}")
    regions = Regions.concatenate(with_rows)
    strange = set(regions.image_id) - set(row_of)
    if strange:
        raise DataError(f"the detector answered for {min(strange)!r}, which it was not given", field="image_id")
    rows = np.array([row_of[image_id] for image_id in regions.image_id], np.int64)
    order = np.argsort(rows, kind="stable")
    rows = rows[order]
    rank = np.arange(len(rows)) - np.searchsorted(rows, rows)
    if rank.max() >= REGIONS_PER_IMAGE:
        image_id = regions.image_id[order][rank.argmax()]
        raise DataError(f"{rank.max() + 1} regions in image {image_id!r}, at most {REGIONS_PER_IMAGE} can be numbered")
    columns = {**regions[order].columns(), "region_id": rows * REGIONS_PER_IMAGE + rank}
    return Regions(header=header, **columns)


def _check_failures(failures: Sequence[Failure], images: int, params: InferenceParams) -> None:
    if len(failures) > params.max_failures * images:
        first = "\n".join(f"  {failure['image_id']}: {failure['reason']}" for failure in failures[:5])
        raise DataError(
            f"{len(failures)} of {images} images cannot be used, more than max_failures = {params.max_failures:g} "
            f"allows. Mend them or raise it, and run again: what is finished is kept. The first:\n{first}"
        )


def _key(detector: Detector, header: Header, images: Images, params: InferenceParams) -> str:
    """Names all that a regions folder is made from."""
    package = __name__.rpartition(".")[0]
    sources = [*source_files(__name__, package), *source_files(type(detector).__module__, package)]
    layer = b"" if header.weight is None or header.bias is None else header.weight.tobytes() + header.bias.tobytes()
    shared = json.dumps([header.to_json(), params.shaping()], sort_keys=True)
    columns = (json.dumps(values.tolist()) for values in images.columns().values())
    return digest(shared, layer, *sources, *columns)


def _stored_key(folder: Path) -> str | None:
    """The key of a regions folder; None where there is no whole one."""
    try:
        regions = RegionsFolder(folder)
    except DataError:
        return None
    return regions.key if all(shard.is_file() for shard in regions.shards) else None


def _remove_others(folder: Path, names: Sequence[str], mark: str) -> list[str]:
    """Removes the sub-folders that hold the file `mark` and are not among `names`, and what kills left half removed.

    Returns:
        The names of the first kind.
    """
    entries = sorted(folder.iterdir()) if folder.is_dir() else []
    others = [entry for entry in entries if entry.name not in names and (entry / mark).is_file()]
    for entry in others:
        entry.replace(folder / f".{os.getpid()}.{entry.name}")
    for entry in folder.glob(".*"):
        if entry.is_dir() and re.fullmatch(r"\.\d+\..+", entry.name):
            shutil.rmtree(entry)
    return [entry.name for entry in others]
