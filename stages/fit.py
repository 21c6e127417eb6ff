"""Fits one method to one run's training regions and takes its threshold τ.

Usage: stages/fit.py RUN METHOD

Reads params.yaml (detectors.RUN and its benchmark's splits, methods.METHOD, fit), artifacts/regions/RUN,
artifacts/thresholds/RUN.json, artifacts/truth/RUN.parquet.
Writes artifacts/fitted/RUN/METHOD: state and threshold.json, or why the method does not apply.
"""

import sys
from pathlib import Path

from farther.metrics.ood import auroc
from farther.params import section
from farther.registry import build
from farther.scoring.entries import read_entry
from farther.scoring.fit import FitSettings, operating_threshold
from farther.scoring.search import fit_entry

ARTIFACTS = Path("artifacts")


def main(run: str, method: str) -> None:
    """Fits `method`, an entry of params.yaml's methods, to `run`, an entry of its detectors."""
    benchmark = section("detectors", run)["benchmark"]
    splits = section("benchmarks", benchmark, "splits")
    tested = [name for name, split in splits.items() if split.get("use", "test") == "test"]
    entry = read_entry(method, section("methods", method))
    settings = build(FitSettings, "section 'fit'", section("fit"))
    operating = operating_threshold(ARTIFACTS / "thresholds" / f"{run}.json")
    path = ARTIFACTS / "fitted" / run / method
    regions = ARTIFACTS / "regions" / run
    truth = ARTIFACTS / "truth" / f"{run}.parquet"
    reason = fit_entry(entry, regions, operating, settings, path, measure=auroc, test_splits=tested, truth=truth)
    print(f"{run} {method}: " + (f"not applicable: {reason}" if reason else "fitted"))


if __name__ == "__main__":
    main(*sys.argv[1:])
