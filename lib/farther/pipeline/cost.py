"""Counts and times what each method costs per image on this machine.

A detector whose regions, passes and parameters are those of the last time keeps its times, and so
does each method whose fitted state is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import cache, partial
from pathlib import Path
from typing import Any

from farther import detectors
from farther.datasets import image_roots
from farther.detectors import Adapter, Detector
from farther.detectors.inference import InferenceParams
from farther.detectors.passes import Pass, read_passes
from farther.detectors.proposals import read_sources, selections
from farther.detectors.settings import ProposalSelection
from farther.evaluation.cost import (
    CostParams,
    RunFolders,
    count_methods,
    count_passes,
    machine,
    time_methods,
    time_network,
    update,
)
from farther.keyed import key_of, write_record
from farther.params import code_digest, section
from farther.registry import build
from farther.scoring.entries import MethodEntry, read_entry
from farther.stage import run_stage
from farther.tables import Images
from farther.tables.documents import write_json
from farther.tables.files import inside
from farther.tables.stored import NetworkTimes, RunCost, RunTimes, read_cost, read_times
from farther.terminal import say

ARTIFACTS = Path("artifacts")
OUTPUT = "artifacts/cost.json"
#: Not an output: dvc.lock would have a digest of times.
TIMES = ARTIFACTS / "times.json"


def main() -> None:
    """Reads regions, passes and fitted methods of all runs, and images of a split.

    Writes OUTPUT and TIMES.
    """
    params = build(CostParams, "params.yaml: cost", section("cost"))
    inference = build(InferenceParams, "params.yaml: inference", section("inference"))
    entries = [read_entry(name, values or {}) for name, values in section("methods").items()]
    roots = image_roots(section("datasets"), ARTIFACTS / "tables")
    encoder = (section().get("embed") or {}).get(
        "encoder"
    )  # a new project without CLIP has no such section
    here = machine()
    earlier = read_times(TIMES)
    known = earlier["runs"] if earlier["machine"] == here else {}
    before = read_cost(Path(OUTPUT))["runs"]
    counted: dict[str, RunCost] = {}
    times: dict[str, RunTimes] = {}
    for run, entry in section("detectors").items():
        folders = RunFolders(*(ARTIFACTS / name / run for name in ("regions", "passes", "fitted")))
        keys = _keys(
            folders, entries, {"entry": entry, "cost": section("cost"), "encoder": encoder}
        )
        passes = cache(
            partial(read_passes, run, entry.get("passes"), encoder)
        )  # takes seconds: it imports PyTorch
        as_before = (
            run in before and run in known and known[run].get("keys", {}).get("") == keys[""]
        )
        counted[run] = {
            "passes": before[run]["passes"] if as_before else count_passes(passes()),
            "methods": count_methods(entries, folders, params.split),
        }
        measured = partial(_network, run, entry, passes, roots, folders, params, inference)
        times[run] = update(
            known.get(run), keys, measured, partial(time_methods, entries, folders, params.split)
        )
        if times[run] != known.get(run):
            say(f"{run}: {_summary(times[run])}", flush=True)
    write_json(TIMES, {"machine": here, "runs": times})
    write_json(OUTPUT, {"images": params.images, "runs": counted})
    write_record(OUTPUT)


def _network(
    run: str,
    entry: Mapping[str, Any],
    passes: Callable[[], Mapping[str, Pass]],
    roots: Mapping[str, Path],
    *rest: Any,
) -> NetworkTimes:
    """Times of a run's network."""
    detector = detectors.of_entry(entry)
    images = Images.read(
        ARTIFACTS / "splits" / entry["benchmark"] / rest[1].split / "images.parquet"
    )
    network = detector if isinstance(detector, Detector) else None
    return time_network(network, passes(), _selections(run, entry, detector), images, roots, *rest)


def _keys(
    folders: RunFolders, entries: Sequence[MethodEntry], params: Mapping[str, Any]
) -> dict[str, str]:
    """Keys of what is timed of a run, see `RunTimes`.

    Args:
        folders: The run's files.
        entries: Of the section `methods`.
        params: Parameters of the run and of this stage.
    """
    network = key_of([folders.regions, folders.passes], {**params, "code": code_digest("cost")})
    keys = {"": network}
    for entry in entries:
        state = inside(folders.fitted, entry.name)
        keys[entry.name] = key_of([state], {"network": network, "entry": asdict(entry)})
    return keys


def _selections(
    run: str, entry: Mapping[str, Any], detector: Adapter
) -> dict[str, ProposalSelection]:
    """Those of the sources of proposals that come of the network's own pass."""
    found = selections(run, read_sources(run, entry.get("proposals")), detector)
    return {name: selection for name, selection in found.items() if selection is not None}


def _summary(times: RunTimes) -> str:
    parts = {"detector": times["detector"], **times["passes"], **times["proposals"]}
    said = [f"{name} {ms:.1f} ms per image" for name, ms in parts.items() if ms is not None]
    return ", ".join(said) or "not measured"


if __name__ == "__main__":
    run_stage(main, OUTPUT)
