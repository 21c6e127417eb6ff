"""What each method of a run costs per image: further passes and stored bytes, and milliseconds on this machine.

What is the same on every machine is counted (`count_passes`, `count_methods`), for a file under
version control; times (`time_network`, `time_methods`) are for one that is not.
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

from farther.cores import has_gpu
from farther.detectors import Detector
from farther.detectors.inference import InferenceParams
from farther.detectors.passes import Pass
from farther.detectors.settings import ProposalSelection
from farther.images.device import inference_mode, one_thread
from farther.images.read import load
from farther.methods import Method, not_applicable
from farther.methods import load as load_method
from farther.methods.loading import read_method
from farther.registry import STRICT
from farther.scoring.entries import MethodEntry
from farther.tables import Images, Regions, RegionsFolder
from farther.tables.files import inside
from farther.tables.stored import Machine, MethodCost, NetworkTimes, PassCost, RunTimes

T = TypeVar("T")

#: The call of `_times` that detects, and nothing else.
DETECTOR = ("detector", "")

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


def machine() -> Machine:
    """The device that times are of."""
    return {"processor": _processor(), "gpu": _gpu() if has_gpu() else None}


def _gpu() -> str | None:
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else None


def _processor() -> str:
    """Name of the processor, of Linux's list where there is one."""
    listed = Path("/proc/cpuinfo")
    names = (
        re.findall(r"^model name\s*: (.+)$", listed.read_text(), re.MULTILINE)
        if listed.exists()
        else []
    )
    return str(names[0]) if names else platform.processor() or platform.machine()


def count_passes(passes: Mapping[str, Pass]) -> dict[str, PassCost]:
    """Passes of the network per image, of each pass of a run."""
    return {
        n: {"forward": one.forward_passes, "backward": one.backward_passes}
        for n, one in passes.items()
    }


def count_methods(
    entries: Sequence[MethodEntry], folders: RunFolders, split: str
) -> dict[str, MethodCost]:
    """The pass that each method reads, and bytes per image of its columns.

    Args:
        entries: Of the section `methods`; those that do not apply are left out.
        folders: The run's files.
        split: The split whose bytes are counted.
    """
    return {
        entry.name: {
            "pass": entry.pass_name,
            "bytes": _stored(read_method(state), folder) / _images(folder),
        }
        for entry, state, folder in _fitted(entries, folders, split)
    }


def update(
    before: RunTimes | None,
    keys: Mapping[str, str],
    network: Callable[[], NetworkTimes],
    methods: Callable[[Mapping[str, float]], dict[str, float]],
) -> RunTimes:
    """Times of a run, of which only those are measured that have another key than before.

    Args:
        before: Those of the last time.
        keys: Of the network ("") and of each method.
        network: Measures the network.
        methods: Measures the methods but those whose times it takes.
    """
    if before is None:
        return {**network(), "keys": dict(keys), "methods": methods({})}
    same = {name for name, key in keys.items() if before.get("keys", {}).get(name) == key}
    if same == keys.keys():
        return before
    stay = {name: value for name, value in before["methods"].items() if name in same}
    return {**(before if "" in same else network()), "keys": dict(keys), "methods": methods(stay)}


def time_methods(
    entries: Sequence[MethodEntry],
    folders: RunFolders,
    split: str,
    known: Mapping[str, float] | None = None,
) -> dict[str, float]:
    """Milliseconds per image of scoring by each method that applies.

    Args:
        entries: Of the section `methods`.
        folders: The run's files.
        split: The split whose regions are scored.
        known: Times that stay, by the method's name.
    """
    return {
        entry.name: known[entry.name]
        if known and entry.name in known
        else _scoring(load_method(state), regions)
        for entry, state, regions in _fitted(entries, folders, split)
    }


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
        passes: Of the run.
        proposals: Selections of proposals of the network's own pass, by the name of their source.
        images: Those of the split that is timed.
        roots: Folder of each dataset that the table names.
        folders: The run's files.
        params: How many images.
        inference: Batch size and limits.

    Returns:
        Milliseconds per image. "detector": None where not measured; "passes" and "proposals":
        {name: those beyond the detector's}.
    """
    drawn = np.unique(
        np.linspace(0, len(images) - 1, min(params.images, len(images))).round().astype(int)
    )
    files = [inside(roots[images.dataset[row]], images.file[row]) for row in drawn]
    times: dict[tuple[str, str], float] = {}
    if detector is not None and files:
        for one in passes.values():
            one.learn(folders.regions)
        pixels = [load(file, inference.max_pixels) for file in files]
        times = _times(detector, passes, proposals, pixels, inference.batch_size)
    further = {call: max(0.0, of_call - times[DETECTOR]) for call, of_call in times.items()}
    return {
        "detector": times.get(DETECTOR),
        "passes": {name: further.get(("pass", name)) for name in passes},
        "proposals": {name: further.get(("proposals", name)) for name in proposals},
    }


def _times(
    detector: Detector,
    passes: Mapping[str, Pass],
    proposals: Mapping[str, ProposalSelection],
    pixels: Sequence[np.ndarray],
    batch_size: int,
) -> dict[tuple[str, str], float]:
    """Milliseconds per image of preparing and detecting, and of each pass and each kind of proposals, which detect too.

    Its keys are `DETECTOR`, and "pass" or "proposals" with a name.
    """
    names = [str(number) for number in range(len(pixels))]
    starts = range(0, len(pixels), batch_size)
    batches = [(pixels[at : at + batch_size], names[at : at + batch_size]) for at in starts]

    def detect(images: Sequence[np.ndarray], image_ids: list[str]) -> Regions:
        with inference_mode():
            return detector.forward([detector.prepare(image) for image in images], image_ids)

    def propose(selection: ProposalSelection) -> Callable[..., Any]:
        def call(images: Sequence[np.ndarray], image_ids: list[str]) -> Any:
            with inference_mode():
                prepared = [detector.prepare(image) for image in images]
                return detector.forward_proposals(prepared, image_ids, {"": selection})

        return call

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
        calls = {
            DETECTOR: detect,
            **{("pass", name): look_again(one) for name, one in passes.items()},
            **{("proposals", name): propose(selection) for name, selection in proposals.items()},
        }
        return {name: _milliseconds(call, batches) / len(pixels) for name, call in calls.items()}


def timed(call: Callable[[], T], tries: int = 1) -> tuple[float, T]:
    """Seconds that a call takes, the fastest of some tries, and what it returned last."""
    fastest = math.inf
    for _ in range(tries):
        start = time.perf_counter()
        returned = call()
        fastest = min(fastest, time.perf_counter() - start)
    return fastest, returned


def _milliseconds(
    call: Callable[..., Any], batches: Sequence[tuple[Sequence[np.ndarray], list[str]]]
) -> float:
    """Milliseconds that a call takes for all batches, after the first one to warm up."""
    call(*batches[0])
    return 1000 * timed(lambda: [call(*batch) for batch in batches], tries=2)[0]


def _fitted(
    entries: Sequence[MethodEntry], folders: RunFolders, split: str
) -> Iterator[tuple[MethodEntry, Path, RegionsFolder]]:
    """Each entry that applies and computes its scores, the folder of its fitted method, and what it reads."""
    for entry in entries:
        state = inside(folders.fitted, entry.name)
        if not not_applicable(state) and read_method(state).get("computes", True):
            place = (
                folders.regions
                if entry.pass_name is None
                else inside(folders.passes, entry.pass_name)
            )
            yield entry, state, RegionsFolder(place / split)


def _images(folder: RegionsFolder) -> int:
    return max(1, folder.info["images"])


def _scoring(method: Method, folder: RegionsFolder) -> float:
    """Milliseconds per image of scoring, from some of a split's regions."""
    some = next((batch[:REGIONS] for batch in folder.batches(method.columns) if len(batch)), None)
    if some is None:
        return 0.0
    method.score(some)
    seconds, _ = timed(lambda: method.score(some))
    return 1000 * seconds / len(some) * len(folder) / _images(folder)


def _stored(method: Mapping[str, Any], folder: RegionsFolder) -> int:
    """Bytes of the columns that a method reads, as they are compressed on disk."""
    total = 0
    for shard in folder.shards:
        metadata = pq.read_metadata(shard)
        for group in range(metadata.num_row_groups):
            columns = (metadata.row_group(group).column(n) for n in range(metadata.num_columns))
            read = (
                column
                for column in columns
                if column.path_in_schema.split(".list")[0] in method["needs"]
            )
            total += sum(column.total_compressed_size for column in read)
    return total
