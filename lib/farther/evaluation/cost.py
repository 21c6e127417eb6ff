"""Cost of each method of a run per image: further passes, stored bytes, and milliseconds.

Costs that are the same on every machine are counted (`count_passes`, `count_methods`), for a file
under version control; times (`time_network`, `time_methods`) are of this machine, for a file that
is not.
"""

from __future__ import annotations

import math
import platform
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np
import pyarrow.parquet as pq
from pydantic import Field
from pydantic.dataclasses import dataclass as checked

from farther.detectors import Detector
from farther.detectors.inference import InferenceParams
from farther.detectors.passes import Pass
from farther.detectors.settings import ProposalSelection
from farther.images.device import inference_mode, one_thread
from farther.images.read import load
from farther.methods import Method, not_applicable
from farther.methods import load as load_method
from farther.methods.loading import read_method, share_asked
from farther.naming.registry import STRICT, Parameters
from farther.processes import has_gpu
from farther.scoring.entries import MethodEntry
from farther.tables import Images, Regions, RegionsFolder
from farther.tables.files import inside
from farther.tables.joined import JoinedFolder, columns_of_pass
from farther.tables.stored import Machine, MethodCost, NetworkTimes, PassCost, RunTimes

T = TypeVar("T")

#: Largest number of regions that are scored for a timing.
REGIONS = 4096


@checked(config=STRICT, kw_only=True)
class CostParams(Parameters):
    """What costs are measured on: section `cost` of params.yaml.

    Args:
        images: Number of images that networks and methods are timed on; 0 measures no times.
        split: The ID split that they are from.
    """

    images: Annotated[int, Field(ge=0)] = 16
    split: str = "test"


@dataclass(frozen=True)
class RunFolders:
    """The folders of a run's regions, passes and fitted methods.

    Passes and fitted methods have one folder per name in theirs.
    """

    regions: Path
    passes: Path
    fitted: Path


@dataclass(frozen=True)
class ScoredMethod:
    """A method of a run that computes its scores.

    Args:
        entry: Its entry in the section `methods`.
        state: The folder of its fitted state.
        regions: The regions that it reads.
    """

    entry: MethodEntry
    state: Path
    regions: RegionsFolder | JoinedFolder


@dataclass(frozen=True)
class ImageBatch:
    """Images that go through a network together, and their names."""

    pixels: Sequence[np.ndarray]
    image_ids: list[str]


#: A call on a batch that is timed.
BatchCall = Callable[[ImageBatch], Any]


def machine() -> Machine:
    """The device that times are measured on."""
    return {"processor": _processor(), "gpu": _gpu() if has_gpu() else None}


def _gpu() -> str | None:
    # PyTorch takes seconds.
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else None


def _processor() -> str:
    """Name of the processor, from Linux's list where there is one."""
    listed = Path("/proc/cpuinfo")
    if listed.exists():
        model = re.search(r"^model name\s*: (.+)$", listed.read_text(), re.MULTILINE)
        if model is not None:
            return model[1]
    return platform.processor() or platform.machine()


def count_passes(passes: Mapping[str, Pass]) -> dict[str, PassCost]:
    """Forward and backward passes of the network per image, of each pass of a run."""
    costs: dict[str, PassCost] = {}
    for name, further_pass in passes.items():
        costs[name] = {
            "forward": further_pass.forward_passes,
            "backward": further_pass.backward_passes,
        }
    return costs


def count_methods(
    entries: Sequence[MethodEntry], folders: RunFolders, split: str
) -> dict[str, MethodCost]:
    """The passes that each method reads, and bytes per image of its columns.

    Args:
        entries: Entries of the section `methods`; those that do not apply are left out.
        folders: The run's files.
        split: The split whose bytes are counted.
    """
    costs: dict[str, MethodCost] = {}
    for method in _scored_methods(entries, folders, split):
        columns = read_method(method.state)["needs"]
        costs[method.entry.name] = {
            "passes": _passes(method),
            "bytes": _stored_bytes(columns, method.regions) / _images(method.regions),
        }
    return costs


def _passes(method: ScoredMethod) -> dict[str, float]:
    """The share for which each pass that a method reads is computed: see `MethodCost`."""
    if method.entry.pass_name is not None:
        return {method.entry.pass_name: 1.0}
    state = read_method(method.state)["state"]
    shares = {}
    for name in method.entry.passes_beside:
        pass_params = method.regions.header.passes[name].detector.get("pass", {})
        if pass_params.get("kind") == "crops":
            shares[name] = share_asked(state, "detections")
        else:
            shares[name] = share_asked(state, "images")
    return shares


def update(
    before: RunTimes | None,
    keys: Mapping[str, str],
    network: Callable[[], NetworkTimes],
    methods: Callable[[Mapping[str, float]], dict[str, float]],
) -> RunTimes:
    """Times of a run; only those with another key than before are measured.

    Args:
        before: The earlier times.
        keys: Keys of the network ("") and of each method.
        network: Measures the network.
        methods: Measures the methods but those whose times it takes.
    """
    if before is None:
        return {**network(), "keys": dict(keys), "methods": methods({})}

    unchanged = {name for name, key in keys.items() if before["keys"].get(name) == key}
    if unchanged == keys.keys():
        return before

    network_times: NetworkTimes = before if "" in unchanged else network()
    known = {name: value for name, value in before["methods"].items() if name in unchanged}
    return {**network_times, "keys": dict(keys), "methods": methods(known)}


def time_methods(
    entries: Sequence[MethodEntry],
    folders: RunFolders,
    split: str,
    known: Mapping[str, float] | None = None,
) -> dict[str, float]:
    """Milliseconds per image of scoring by each method that applies.

    Args:
        entries: Entries of the section `methods`.
        folders: The run's files.
        split: The split whose regions are scored.
        known: Times that stay, by the method's name.
    """
    times = {}
    for method in _scored_methods(entries, folders, split):
        name = method.entry.name
        if known is not None and name in known:
            times[name] = known[name]
        else:
            times[name] = _time_scoring(load_method(method.state), method.regions)
    return times


def time_network(
    detector: Detector | None,
    passes: Mapping[str, Pass],
    proposals: Mapping[str, ProposalSelection],
    images: Images,
    roots: Mapping[str, Path],
    folders: RunFolders,
    params: CostParams,
    inference: InferenceParams,
) -> NetworkTimes:
    """Times the detector, its passes and proposals on some images; PyTorch uses one core, or a GPU.

    Args:
        detector: The run's detector; None for imported detections, whose costs are not known.
        passes: Passes of the run.
        proposals: Selections of proposals of the network's own pass, by the name of their source.
        images: Images of the split that is timed.
        roots: Folder of each dataset that the table names.
        folders: The run's files.
        params: The number of images.
        inference: Batch size and limits.

    Returns:
        Milliseconds per image. "detector": None where not measured; "passes" and "proposals":
        {name: milliseconds beyond the detector's}.
    """
    files = _files_to_time(images, roots, params.images)
    if detector is None or not files:
        return {
            "detector": None,
            "passes": dict.fromkeys(passes),
            "proposals": dict.fromkeys(proposals),
        }

    for further_pass in passes.values():
        further_pass.learn(folders.regions)
    advice = inference.advice_on_size()
    pixels = [load(file, inference.max_pixels, advice) for file in files]
    batches = _batches(pixels, inference.batch_size)

    _load_network(detector)
    with one_thread():
        detector_time = _milliseconds_per_image(_detect(detector), batches)
        times: NetworkTimes = {"detector": detector_time, "passes": {}, "proposals": {}}
        for name, further_pass in passes.items():
            with_pass = _milliseconds_per_image(_run_pass(detector, further_pass), batches)
            times["passes"][name] = max(0.0, with_pass - detector_time)
        for name, selection in proposals.items():
            with_proposals = _milliseconds_per_image(_propose(detector, selection), batches)
            times["proposals"][name] = max(0.0, with_proposals - detector_time)
    return times


def _files_to_time(images: Images, roots: Mapping[str, Path], count: int) -> list[Path]:
    """The files of some images, evenly spread over the table."""
    rows = np.linspace(0, len(images) - 1, min(count, len(images))).round().astype(int)
    return [inside(roots[images.dataset[row]], images.file[row]) for row in np.unique(rows)]


def _batches(pixels: Sequence[np.ndarray], batch_size: int) -> list[ImageBatch]:
    names = [str(number) for number in range(len(pixels))]
    batches = []
    for start in range(0, len(pixels), batch_size):
        rows = slice(start, start + batch_size)
        batches.append(ImageBatch(pixels[rows], names[rows]))
    return batches


def _load_network(detector: Detector) -> None:
    """Loads the network outside of inference mode: a pass may compute gradients."""
    _ = detector.network


def _detect(detector: Detector) -> BatchCall:
    """A call that prepares and detects."""

    def detect(batch: ImageBatch) -> Regions:
        with inference_mode():
            prepared = [detector.prepare(image) for image in batch.pixels]
            return detector.forward(prepared, batch.image_ids)

    return detect


def _propose(detector: Detector, selection: ProposalSelection) -> BatchCall:
    """A call that prepares, detects and selects proposals."""

    def propose(batch: ImageBatch) -> Any:
        with inference_mode():
            prepared = [detector.prepare(image) for image in batch.pixels]
            return detector.forward_proposals(prepared, batch.image_ids, {"": selection})

    return propose


def _run_pass(detector: Detector, further_pass: Pass) -> BatchCall:
    """A call that prepares, detects and runs a pass."""

    def run_pass(batch: ImageBatch) -> Regions:
        prepared = [further_pass.prepare(detector, image) for image in batch.pixels]
        if further_pass.needs_gradients:
            return further_pass.forward(detector, prepared, batch.image_ids)
        with inference_mode():
            return further_pass.forward(detector, prepared, batch.image_ids)

    return run_pass


def timed(call: Callable[[], T], tries: int = 1) -> tuple[float, T]:
    """Seconds that a call takes, the fastest of some tries, and what it returned last.

    They are seconds of one core, so that programs beside this one do not lengthen them. A GPU's
    work is no time of a core: where there is one, they are seconds by the clock.
    """
    clock = time.perf_counter if has_gpu() else time.process_time
    fastest = math.inf
    for _ in range(tries):
        start = clock()
        returned = call()
        fastest = min(fastest, clock() - start)
    return fastest, returned


def _milliseconds_per_image(call: BatchCall, batches: Sequence[ImageBatch]) -> float:
    """Milliseconds per image of a call on all batches, after the first one to warm up."""

    def call_all() -> None:
        for batch in batches:
            call(batch)

    call(batches[0])
    seconds, _ = timed(call_all, tries=2)
    images = sum(len(batch.image_ids) for batch in batches)
    return 1000 * seconds / images


def _scored_methods(
    entries: Sequence[MethodEntry], folders: RunFolders, split: str
) -> Iterator[ScoredMethod]:
    """The methods that apply and compute their scores, with the regions of a split."""
    for entry in entries:
        state = inside(folders.fitted, entry.name)
        if not_applicable(state) or not read_method(state).get("computes", True):
            continue
        regions = folders.regions
        if entry.pass_name is not None:
            regions = inside(folders.passes, entry.pass_name)
        folder: RegionsFolder | JoinedFolder = RegionsFolder(regions / split)
        if entry.passes_beside:
            beside = {name: inside(folders.passes, name) / split for name in entry.passes_beside}
            folder = JoinedFolder(regions / split, beside)
        yield ScoredMethod(entry, state, folder)


def _images(folder: RegionsFolder | JoinedFolder) -> int:
    """Number of images of a split, at least 1."""
    return max(1, folder.info["images"])


def _time_scoring(method: Method, folder: RegionsFolder | JoinedFolder) -> float:
    """Milliseconds per image of scoring, from some of a split's regions."""
    for batch in folder.batches(method.columns):
        if len(batch):
            some_regions = batch[:REGIONS]
            break
    else:
        return 0.0

    method.score(some_regions)  # warms up
    seconds, _ = timed(lambda: method.score(some_regions))
    return 1000 * seconds / len(some_regions) * len(folder) / _images(folder)


def _stored_bytes(columns: Sequence[str], folder: RegionsFolder | JoinedFolder) -> int:
    """Bytes of the columns that a method reads, as they are compressed on disk.

    Args:
        columns: Names of the columns.
        folder: The regions.
    """
    if isinstance(folder, JoinedFolder):
        total = 0
        for name, of_pass in folder.folders.items():
            total += _stored_bytes(columns_of_pass(name, columns), of_pass)
        return total
    total = 0
    for shard in folder.shards:
        metadata = pq.read_metadata(shard)
        for group_number in range(metadata.num_row_groups):
            group = metadata.row_group(group_number)
            for column_number in range(group.num_columns):
                column = group.column(column_number)
                name = column.path_in_schema.split(".list")[0]
                if name in columns:
                    total += column.total_compressed_size
    return total
