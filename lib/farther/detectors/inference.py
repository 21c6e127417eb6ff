"""The inference engine: a detector over all images of a table, into a regions folder.

Images are decoded and prepared in worker processes; the network runs in this one if it has a GPU, else in the workers,
on a core each. Rows go to disk a shard at a time, so memory holds one shard and a few batches, however many images
there are. A run that was killed goes on where it stopped and ends in the same bytes. `farther.detectors.ray_engine`
makes the same shards on a cluster.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass
from tqdm import tqdm

from farther.code import digest_of
from farther.detectors.shards import Failure, Job, Plan
from farther.errors import DataError
from farther.images import read as pictures
from farther.registry import STRICT
from farther.tables import Header, Images, RegionsFolder, RegionsWriter
from farther.tables.files import digest

if TYPE_CHECKING:
    from farther.detectors.base import Detector


@dataclass(config=STRICT, kw_only=True)
class InferenceParams:
    """How the engine goes through the images.

    Args:
        batch_size: Images that the network sees at once. Another size changes numbers by rounding only.
        workers: Worker processes; 0 does all in this one. Beside a network on a GPU they decode and prepare: one fewer
            than there are cores, and at most 8, unless said otherwise. On the CPU each decodes, prepares and runs the
            network on one core, with memory for a batch of its own: as many as there are cores, and at most 8.
            With "ray", so many beside each network; see `farther.detectors.ray_engine`.
        shard_images: Images in one shard, which is what is written at once, kept after a kill, and held in memory.
        batches: Which images of a shard share a batch: those of "similar shape", so that little is padded, or those
            that follow each other in the "table". The order of the rows is that of the table either way.
        exif: See `farther.images.read.load`.
        max_pixels: Images with more are not decoded and count as failures.
        max_failures: Fraction of the images that may be unusable before the run ends in an error.
        engine: Where the network runs: in this process ("local"), or in one process for each GPU of a Ray cluster
            ("ray"), which may be several machines. The folder that comes out is the same.
    """

    batch_size: Annotated[int, Field(ge=1)] = 16
    workers: Annotated[int, Field(ge=0)] | None = None
    shard_images: Annotated[int, Field(ge=1)] = 512
    batches: Literal["similar shape", "table"] = "similar shape"
    exif: pictures.Exif = "ignore"
    max_pixels: Annotated[int, Field(ge=1)] = pictures.MAX_PIXELS
    max_failures: Annotated[float, Field(ge=0, le=1)] = 0.01
    engine: Literal["local", "ray"] = "local"

    def shaping(self) -> dict[str, Any]:
        """The parameters that the written folder depends on: not who does the work, nor what is tolerated."""
        others = ("workers", "max_failures", "engine")
        return {name: value for name, value in asdict(self).items() if name not in others}

    def processes(self, cores_left: int = 1) -> int:
        """How many worker processes to start, if so many cores are to be left to this one."""
        return min(8, _cores() - cores_left) if self.workers is None else self.workers


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
        ParameterError: the table names a dataset that has no root, or see `ray_engine.make_on_cluster`.
        DataError: more images failed than `max_failures` allows, or a file name leads out of its root.
        FartherError: a worker process was killed from outside.
    """
    params = params or InferenceParams()
    header = detector.header()
    plan = Plan(images, roots, params)
    writer = RegionsWriter(out, header, work, folder_key(detector, header, images, params))
    job = Job(detector, header, plan, writer)
    todo = [shard for shard in range(plan.shards) if not job.is_kept(shard)]
    done = len(images) - sum(len(plan.rows(shard)) for shard in todo)
    with tqdm(total=len(images), initial=done, desc=Path(out).name, unit="image", disable=not progress) as bar:
        if params.engine == "ray":
            from farther.detectors.ray_engine import make_on_cluster

            make_on_cluster(job, todo, bar.update)
        else:
            processes = params.processes(cores_left=0 if detector.runs_on_cpu() else 1)
            for _ in job.make(todo, processes, bar.update):
                pass
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
    header = detector.header()

    def key(_: str, images: Images) -> str:
        return folder_key(detector, header, images, params)

    def make(split: str, images: Images, to: Path, unfinished: Path) -> RegionsFolder:
        folder = infer(detector, images, roots, to, unfinished, params, progress=progress)
        counts = folder.info
        say(f"{split}: {counts['images']} images, {counts['regions']} regions, {len(counts['failures'])} failures")
        return folder

    return update_splits(splits, out, work, key, make, say)


def update_splits(
    splits: str | Path,
    out: str | Path,
    work: str | Path,
    key: Callable[[str, Images], str],
    make: Callable[[str, Images, Path, Path], RegionsFolder],
    say: Callable[[str], None],
) -> dict[str, RegionsFolder]:
    """Makes the regions folders whose key is another than it was, and removes those of splits that are gone.

    Args:
        splits: Folder whose sub-folders are the splits; each holds `images.parquet`.
        out, work: The folders to be, and unfinished ones: sub-folders of the split's name.
        key: Split and images → the name of all that its folder is made from.
        make: Split, images, folder to be and folder for unfinished work → the folder; says what it made.
        say: Takes a line about each split that was not made.

    Returns:
        The regions folder of each split.

    Raises:
        DataError: there is no split.
    """
    splits, out, work = Path(splits), Path(out), Path(work)
    names = sorted(entry.name for entry in splits.iterdir() if entry.is_dir()) if splits.is_dir() else []
    if not names:
        raise DataError("no split here: expected sub-folders with images.parquet, as curate writes them", file=splits)
    _remove_others(work, names, "started.json")
    for name in _remove_others(out, names, "regions.json"):
        say(f"{name}: removed, it is no split any more")
    folders = {}
    for name in names:
        images = Images.read(splits / name / "images.parquet")
        if _stored_key(out / name) == key(name, images):
            folders[name] = RegionsFolder(out / name)
            say(f"{name}: unchanged")
        else:
            folders[name] = make(name, images, out / name, work / name)
    return folders


def _check_failures(failures: Sequence[Failure], images: int, params: InferenceParams) -> None:
    if len(failures) > params.max_failures * images:
        first = "\n".join(f"  {failure['image_id']}: {failure['reason']}" for failure in failures[:5])
        raise DataError(
            f"{len(failures)} of {images} images cannot be used, more than max_failures = {params.max_failures:g} "
            f"allows. Mend them or raise it, and run again: what is finished is kept. The first:\n{first}"
        )


def folder_key(detector: Detector, header: Header, images: Images, params: InferenceParams) -> str:
    """Names all that a regions folder is made from."""
    layer = b"" if header.weight is None or header.bias is None else header.weight.tobytes() + header.bias.tobytes()
    shared = json.dumps([header.to_json(), params.shaping()], sort_keys=True)
    columns = (json.dumps(values.tolist()) for values in images.columns().values())
    return digest(shared, layer, digest_of(__name__, type(detector).__module__), *columns)


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
