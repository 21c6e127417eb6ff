"""Chooses the operating threshold of a run: python stages/threshold.py RUN."""

import sys

from farther.evaluation.files import RunFiles
from farther.evaluation.threshold import ThresholdSettings, choose_threshold
from farther.params import section
from farther.registry import build


def main(run: str) -> None:
    """Reads the ID validation regions and objects; writes artifacts/thresholds/RUN.json and truth/RUN.parquet."""
    detector = section("detectors", run)
    settings = build(ThresholdSettings, "params.yaml: threshold", section("threshold") | detector.get("threshold", {}))
    choose_threshold(RunFiles(run, detector["benchmark"]), settings)


if __name__ == "__main__":
    main(*sys.argv[1:])
