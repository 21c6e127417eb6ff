"""Runs a detector over the splits of its benchmark, those that changed: `python stages/infer.py voc-faster_rcnn`."""

import sys
from pathlib import Path

from _params import section
from farther import detectors
from farther.detectors.inference import InferenceParams, infer_splits
from farther.registry import build

ARTIFACTS = Path("artifacts")


def main(run: str) -> None:
    """Reads `detectors.RUN`, `inference` and the roots of `datasets`; writes artifacts/regions/RUN/<split>."""
    entry = section("detectors", run)
    weights = {"weights": entry["weights"]} if "weights" in entry else {}
    detector = detectors.create(entry["adapter"], **weights, **entry.get("params", {}))
    roots = {name: Path(dataset["root"]) for name, dataset in section("datasets").items()}
    params = build(InferenceParams, "params.yaml: inference", section("inference"))
    splits = ARTIFACTS / "splits" / entry["benchmark"]
    out, work = ARTIFACTS / "regions" / run, ARTIFACTS / ".work" / "regions" / run
    infer_splits(detector, splits, roots, out, work, params, say=lambda line: print(line, flush=True))


if __name__ == "__main__":
    main(*sys.argv[1:])
