"""Runs a detector over the splits of its benchmark that changed, or imports what another program detected in them.

Then it looks again at what the detector found, in the passes that the run's entry asks for.

Usage: stages/infer.py RUN
"""

import sys
from functools import partial
from pathlib import Path

from farther import detectors
from farther.datasets import image_roots
from farther.detectors.imported import Imported, import_splits
from farther.detectors.inference import InferenceParams, infer_splits
from farther.detectors.passes import infer_passes, read_passes
from farther.params import section
from farther.registry import build

ARTIFACTS = Path("artifacts")


def main(run: str) -> None:
    """Reads `detectors.RUN`, `inference` and the roots of `datasets`; writes artifacts/{regions,passes}/RUN."""
    entry = section("detectors", run)
    weights = {"weights": entry["weights"]} if "weights" in entry else {}
    detector = detectors.create(entry["adapter"], **weights, **entry.get("params", {}))
    roots = image_roots(section("datasets"), ARTIFACTS / "tables")
    params = build(InferenceParams, "params.yaml: inference", section("inference"))
    log = partial(print, flush=True)
    splits = ARTIFACTS / "splits" / entry["benchmark"]
    out, work = ARTIFACTS / "regions" / run, ARTIFACTS / ".work" / "regions" / run
    passes = read_passes(run, entry.get("passes"))
    if isinstance(detector, Imported):
        import_splits(detector, splits, out, work, params.shard_images, log=log)
    else:
        infer_splits(detector, splits, roots, out, work, params, log=log)
    again, unfinished = ARTIFACTS / "passes" / run, ARTIFACTS / ".work" / "passes" / run
    infer_passes(detector, passes, splits, roots, out, again, unfinished, params, log=log)


if __name__ == "__main__":
    main(*sys.argv[1:])
