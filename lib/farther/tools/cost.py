"""What each method of a run costs per image on this machine: further passes, milliseconds on one core, stored bytes."""

from __future__ import annotations

import platform
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow.parquet as pq
from pydantic import Field
from pydantic.dataclasses import dataclass as checked

from farther.detectors import Detector
from farther.detectors.inference import InferenceParams
from farther.detectors.passes import Pass
from farther.images.device import inference_mode, one_thread
from farther.images.read import load
from farther.methods import Method, not_applicable
from farther.methods import load as load_method
from farther.registry import STRICT
from farther.scoring.entries import Entry
from farther.tables import Images, Regions, RegionsFolder
from farther.tables.files import inside

#: Regions that are scored for a timing, at most.
REGIONS = 4096


@checked(config=STRICT, kw_only=True)
class CostParams:
    """Section `cost` of params.yaml.

    Args:
        images: Number of images of the ID test split that are timed; 0 measures nothing.
        split: Its name.
    """

    images: Annotated[int, Field(ge=0)] = 16
    split: str = "test"


@dataclass(frozen=True)
class RunFolders:
    """Where the files of a run are: its regions, its passes and its fitted methods, each with one folder per name."""

    regions: Path
    passes: Path
    fitted: Path


def machine() -> dict[str, Any]:
    """The device that times are of."""
    import torch

    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {"processor": _processor(), "gpu": gpu}


def _processor() -> str:
    """Name of the processor, of Linux's list where there is one."""
    listed = Path("/proc/cpuinfo")
    names = re.findall(r"^model name\s*: (.+)$", listed.read_text(), re.MULTILINE) if listed.exists() else []
    return str(names[0]) if names else platform.processor() or platform.machine()


def measure(
    detector: Detector | None,
    passes: Mapping[str, Pass],
    entries: Sequence[Entry],
    images: Images,
    roots: Mapping[str, Path],
    folders: RunFolders,
    params: CostParams,
    inference: InferenceParams | None = None,
) -> dict[str, Any]:
    """Times the detector, its passes and its methods on some images; PyTorch uses one core, or the detector's GPU.

    Args:
        detector: The run's detector; None for imported detections, whose costs are not known.
        passes: Of the run.
        entries: Of the section `methods`.
        images: Those of the split that is timed.
        roots: Folder of each dataset that the table names.
        folders: The run's files.
        params: How many images.
        inference: Batch size, EXIF and limits.

    Returns:
        "detector_ms": milliseconds per image, None where not measured; "passes": {name: {"forward", "backward" (passes
        per image), "ms" beyond the detector's}}; "methods": {entry: {"pass", "ms" of scoring, "bytes" of the columns
        that it reads}}, per image. Entries that do not apply are left out.
    """
    inference = inference or InferenceParams()
    drawn = np.unique(np.linspace(0, len(images) - 1, min(params.images, len(images))).round().astype(int))
    files = [inside(roots[images.dataset[row]], images.file[row]) for row in drawn]
    times: dict[str, float] = {}
    if detector is not None and files:
        for one in passes.values():
            one.learn(folders.regions)
        pixels = [load(file, inference.exif, inference.max_pixels) for file in files]
        times = _times(detector, passes, pixels, inference.batch_size)
    return {
        "detector_ms": times.get(""),
        "passes": {
            name: {
                "forward": one.forward_passes,
                "backward": one.backward_passes,
                "ms": None if not times else max(0.0, times[name] - times[""]),
            }
            for name, one in passes.items()
        },
        "methods": {e.name: found for e in entries if (found := _of_method(e, folders, params.split)) is not None},
    }


def _times(
    detector: Detector, passes: Mapping[str, Pass], pixels: Sequence[np.ndarray], batch_size: int
) -> dict[str, float]:
    """Milliseconds per image of preparing and detecting (""), and of each pass, which detects too."""
    names = [str(number) for number in range(len(pixels))]
    starts = range(0, len(pixels), batch_size)
    batches = [(pixels[at : at + batch_size], names[at : at + batch_size]) for at in starts]

    def detect(images: Sequence[np.ndarray], image_ids: list[str]) -> Regions:
        with inference_mode():
            return detector.forward([detector.prepare(image) for image in images], image_ids)

    def look_again(one: Pass) -> Callable[..., Regions]:
        def call(images: Sequence[np.ndarray], image_ids: list[str]) -> Regions:
            prepared = [one.prepare(detector, image) for image in images]
            if one.needs_gradients:
                return one.forward(detector, prepared, image_ids)
            with inference_mode():
                return one.forward(detector, prepared, image_ids)

        return call

    getattr(detector, "network")  # noqa: B009, loaded outside of inference mode: a pass may compute gradients
    with one_thread():
        calls = {"": detect, **{name: look_again(one) for name, one in passes.items()}}
        return {name: _milliseconds(call, batches) / len(pixels) for name, call in calls.items()}


def _milliseconds(call: Callable[..., Regions], batches: Sequence[tuple[Sequence[np.ndarray], list[str]]]) -> float:
    """Milliseconds that a call takes for all batches, the faster of two times, after the first batch to warm up."""
    call(*batches[0])
    times = []
    for _ in range(2):
        start = time.perf_counter()
        for batch in batches:
            call(*batch)
        times.append(1000 * (time.perf_counter() - start))
    return min(times)


def _of_method(entry: Entry, folders: RunFolders, split: str) -> dict[str, Any] | None:
    state = inside(folders.fitted, entry.name)
    if not_applicable(state):
        return None
    method = load_method(state)
    place = folders.regions if entry.pass_name is None else inside(folders.passes, entry.pass_name)
    folder = RegionsFolder(place / split)
    images = max(1, folder.info["images"])
    return {"pass": entry.pass_name, "ms": _scoring(method, folder, images), "bytes": _stored(method, folder) / images}


def _scoring(method: Method, folder: RegionsFolder, images: int) -> float:
    """Milliseconds per image of scoring, from some of a split's regions."""
    some = next((batch[:REGIONS] for batch in folder.batches(method.columns) if len(batch)), None)
    if some is None:
        return 0.0
    method.score(some)
    start = time.perf_counter()
    method.score(some)
    return 1000 * (time.perf_counter() - start) / len(some) * len(folder) / images


def _stored(method: Method, folder: RegionsFolder) -> int:
    """Bytes of the columns that a method reads, as they are compressed on disk."""
    total = 0
    for shard in folder.shards:
        metadata = pq.read_metadata(shard)
        for group in range(metadata.num_row_groups):
            columns = (metadata.row_group(group).column(n) for n in range(metadata.num_columns))
            read = (column for column in columns if column.path_in_schema.split(".list")[0] in method.inputs)
            total += sum(column.total_compressed_size for column in read)
    return total
