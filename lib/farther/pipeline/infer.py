"""Runs a detector over the splits of its benchmark that changed, or imports what another program detected in them.

Then it looks again at what the detector found, in the passes that the run's entry asks for.
"""

from functools import partial
from pathlib import Path
from typing import Any

from farther import detectors
from farther.datasets import image_roots
from farther.detectors.imported import Imported, import_splits
from farther.detectors.inference import InferenceParams, infer_splits
from farther.detectors.known_classes import check_classes
from farther.detectors.passes import infer_passes, read_passes
from farther.params import run_entry, section
from farther.registry import build
from farther.stage import run_stage
from farther.tables.schema import read_typed

ARTIFACTS = Path("artifacts")
OUTPUT = "artifacts/regions/{}"


def main(run: str) -> None:
    """Reads `detectors.RUN`, `inference` and the roots of `datasets`; writes artifacts/{regions,passes}/RUN."""
    entry = run_entry(run)
    weights = {"weights": entry["weights"]} if "weights" in entry else {}
    detector: Any = detectors.create(entry["adapter"], **{**entry["params"], **weights})
    roots = image_roots(section("datasets"), ARTIFACTS / "tables")
    params = build(InferenceParams, "params.yaml: inference", section("inference"))
    log = partial(print, flush=True)
    splits = ARTIFACTS / "splits" / entry["benchmark"]
    out, work = ARTIFACTS / "regions" / run, ARTIFACTS / ".work" / "regions" / run
    passes = read_passes(run, entry["passes"], (section().get("embed") or {}).get("encoder"))
    names = entry["classes"]
    if absent := check_classes(detector.header(), names, read_typed(list[str], splits / "id_classes.json")):
        log(f"{run} does not have the ID classes {', '.join(absent)}: it finds none of their objects")
    if isinstance(detector, Imported):
        import_splits(detector, splits, out, work, params.shard_images, classes=names, log=log)
    else:
        infer_splits(detector, splits, roots, out, work, params, classes=names, log=log)
    again, unfinished = ARTIFACTS / "passes" / run, ARTIFACTS / ".work" / "passes" / run
    infer_passes(detector, passes, splits, roots, out, again, unfinished, params, classes=names, log=log)


if __name__ == "__main__":
    run_stage(main, OUTPUT)
