"""Measures what each method costs per image on this machine."""

import json
from pathlib import Path
from typing import Any

from farther import detectors
from farther.datasets import image_roots
from farther.detectors import Detector
from farther.detectors.inference import InferenceParams
from farther.detectors.passes import read_passes
from farther.params import section
from farther.registry import build
from farther.scoring.entries import read_entry
from farther.stage import run_stage
from farther.tables import Images
from farther.tables.documents import write_json
from farther.tables.files import digest
from farther.tables.stored import read_cost
from farther.tools.cost import CostParams, RunFolders, machine, measure

ARTIFACTS = Path("artifacts")
OUTPUT = "artifacts/cost.json"
OUT = ARTIFACTS / "cost.json"


def main() -> None:
    """Reads regions, passes and fitted methods of all runs, and images of a split; writes artifacts/cost.json."""
    params = build(CostParams, "params.yaml: cost", section("cost"))
    inference = build(InferenceParams, "params.yaml: inference", section("inference"))
    entries = [read_entry(name, values or {}) for name, values in section("methods").items()]
    roots = image_roots(section("datasets"), ARTIFACTS / "tables")
    encoder = (section().get("embed") or {}).get("encoder")  # a new project without CLIP has no such section
    here = machine()
    earlier = read_cost(OUT)
    known = earlier["runs"] if earlier["machine"] == here else {}
    runs: dict[str, Any] = {}
    for run, entry in section("detectors").items():
        folders = RunFolders(*(ARTIFACTS / name / run for name in ("regions", "passes", "fitted")))
        made = [folder / "keys.json" for folder in (folders.regions, folders.passes, folders.fitted)]
        key = digest(
            json.dumps([entry, section("cost"), section("methods"), encoder]), *(f for f in made if f.exists())
        )
        runs[run] = known.get(run)
        if runs[run] is None or runs[run]["key"] != key:
            weights = {"weights": entry["weights"]} if "weights" in entry else {}
            detector = detectors.create(entry["adapter"], **weights, **entry.get("params", {}))
            images = Images.read(ARTIFACTS / "splits" / entry["benchmark"] / params.split / "images.parquet")
            measured = measure(
                detector if isinstance(detector, Detector) else None,
                read_passes(run, entry.get("passes"), encoder),
                entries,
                images,
                roots,
                folders,
                params,
                inference,
            )
            runs[run] = {"key": key, **measured}
            print(f"{run}: {_summary(measured)}", flush=True)
    write_json(OUT, {"machine": here, "images": params.images, "runs": runs})


def _summary(measured: dict[str, Any]) -> str:
    times = {"detector": measured["detector_ms"], **{name: of["ms"] for name, of in measured["passes"].items()}}
    said = [f"{name} {ms:.1f} ms per image" for name, ms in times.items() if ms is not None]
    return ", ".join(said) or "not measured"


if __name__ == "__main__":
    run_stage(main, OUTPUT)
