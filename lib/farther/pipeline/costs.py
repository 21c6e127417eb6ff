"""Counts and times what each method costs per image on this machine: part of the stage `choose`.

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
from farther.detectors.proposal_sources import read_sources, selections
from farther.detectors.settings import ProposalSelection
from farther.errors import DataError
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
from farther.incremental.code import code_digest
from farther.incremental.keyed import key_of, write_record
from farther.naming.registry import build
from farther.params import section
from farther.scoring.entries import MethodEntry, read_entries
from farther.tables import Images
from farther.tables.documents import write_json
from farther.tables.files import inside
from farther.tables.stored import NetworkTimes, RunCost, RunTimes, read_cost, read_times
from farther.text.terminal import say

ARTIFACTS = Path("artifacts")
OUTPUT = "artifacts/cost.json"
#: Not an output: dvc.lock would have a digest of times.
TIMES = ARTIFACTS / "times.json"


def measure_costs() -> None:
    """Reads regions, passes and fitted methods of all runs, and images of a split.

    Writes OUTPUT and TIMES.
    """
    params = build(CostParams, "params.yaml: cost", section("cost"))
    inference = build(InferenceParams, "params.yaml: inference", section("inference"))
    entries = read_entries(section("methods"))
    roots = image_roots(section("datasets"), ARTIFACTS / "tables")
    # A new project without CLIP has no section `embed`.
    encoder = (section().get("embed") or {}).get("encoder")

    this_machine = machine()
    earlier = read_times(TIMES)
    earlier_times = {}
    if earlier["machine"] == this_machine:
        earlier_times = earlier["runs"]
    earlier_costs = _earlier_costs()

    costs: dict[str, RunCost] = {}
    times: dict[str, RunTimes] = {}
    for run, entry in section("detectors").items():
        folders = RunFolders(
            regions=ARTIFACTS / "regions" / run,
            passes=ARTIFACTS / "passes" / run,
            fitted=ARTIFACTS / "fitted" / run,
        )
        run_params = {"entry": entry, "cost": section("cost"), "encoder": encoder}
        keys = _keys(folders, entries, run_params)
        # Reading passes takes seconds, because it imports PyTorch.
        passes = cache(partial(read_passes, run, entry.get("passes"), encoder))

        known_times = earlier_times.get(run)
        if run in earlier_costs and known_times and known_times.get("keys", {}).get("") == keys[""]:
            pass_counts = earlier_costs[run]["passes"]
        else:
            pass_counts = count_passes(passes())
        method_counts = count_methods(entries, folders, params.split)
        costs[run] = {"passes": pass_counts, "methods": method_counts}

        times[run] = update(
            known_times,
            keys,
            partial(_network, run, entry, passes, roots, folders, params, inference),
            partial(time_methods, entries, folders, params.split),
        )
        if times[run] != known_times:
            say(f"{run}: {_summary(times[run])}", flush=True)

    write_json(TIMES, {"machine": this_machine, "runs": times})
    write_json(OUTPUT, {"images": params.images, "runs": costs})
    write_record(OUTPUT)


def _earlier_costs() -> dict[str, RunCost]:
    """Costs by run of the last time; {} where the file is damaged, or of another version."""
    try:
        return read_cost(Path(OUTPUT))["runs"]
    except DataError:
        return {}


def _network(
    run: str,
    entry: Mapping[str, Any],
    passes: Callable[[], Mapping[str, Pass]],
    roots: Mapping[str, Path],
    folders: RunFolders,
    params: CostParams,
    inference: InferenceParams,
) -> NetworkTimes:
    """Times of a run's network, in milliseconds per image."""
    adapter = detectors.of_entry(entry)
    detector = None
    if isinstance(adapter, Detector):
        detector = adapter
    split = ARTIFACTS / "splits" / entry["benchmark"] / params.split
    images = Images.read(split / "images.parquet")
    proposals = _selections(run, entry, adapter)
    return time_network(detector, passes(), proposals, images, roots, folders, params, inference)


def _keys(
    folders: RunFolders, entries: Sequence[MethodEntry], params: Mapping[str, Any]
) -> dict[str, str]:
    """Cache keys of a run's times, by method; that of the network has the name "".

    Args:
        folders: The run's files.
        entries: Entries of the section `methods`.
        params: Parameters of the run and of this stage.
    """
    network = key_of([folders.regions, folders.passes], {**params, "code": code_digest("choose")})
    keys = {"": network}
    for entry in entries:
        state = inside(folders.fitted, entry.name)
        keys[entry.name] = key_of([state], {"network": network, "entry": asdict(entry)})
    return keys


def _selections(
    run: str, entry: Mapping[str, Any], detector: Adapter
) -> dict[str, ProposalSelection]:
    """Selections of the proposals that the network's own forward pass computes, by source."""
    sources = read_sources(run, entry.get("proposals"))
    own_selections = {}
    for name, selection in selections(run, sources, detector).items():
        if selection is not None:
            own_selections[name] = selection
    return own_selections


def _summary(times: RunTimes) -> str:
    """Times of a run's network, as text."""
    time_by_part = {"detector": times["detector"], **times["passes"], **times["proposals"]}
    texts = []
    for name, milliseconds in time_by_part.items():
        if milliseconds is not None:
            texts.append(f"{name} {milliseconds:.1f} ms per image")
    return ", ".join(texts) or "not measured"
