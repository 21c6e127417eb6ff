"""Fits the methods to the training regions of a run, and scores the regions of its other splits.

Usage: stages/score.py RUN

Reads params.yaml, artifacts/regions/RUN, artifacts/thresholds/RUN.json, artifacts/truth/RUN.parquet. Writes
artifacts/fitted/RUN/METHOD and artifacts/scores/RUN/METHOD/<split>.parquet where inputs, parameters or code changed.
"""

import sys
from pathlib import Path

from farther.curation import benchmark
from farther.params import code_digest, section
from farther.registry import build
from farther.scoring.entries import read_entry
from farther.scoring.inputs import FitSettings, RunRegions, operating_threshold
from farther.scoring.score import score_run

ARTIFACTS = Path("artifacts")


def main(run: str) -> None:
    """Applies all entries of `methods` to `run`, an entry of `detectors`."""
    name = section("detectors", run, "benchmark")
    regions = RunRegions(
        ARTIFACTS / "regions" / run,
        operating_threshold(ARTIFACTS / "thresholds" / f"{run}.json"),
        build(FitSettings, "params.yaml: fit", section("fit")),
        ARTIFACTS / "truth" / f"{run}.parquet",
        tuple(benchmark(name, section("benchmarks", name)).test_splits),
    )
    entries = [read_entry(entry, values or {}) for entry, values in section("methods").items()]
    code = {entry.name: code_digest("score", entry.name) for entry in entries}
    done = score_run(entries, regions, ARTIFACTS / "fitted" / run, ARTIFACTS / "scores" / run, code)
    print(f"{run}: {done}")


if __name__ == "__main__":
    main(*sys.argv[1:])
