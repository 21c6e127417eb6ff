"""Scores the regions of one run with one fitted method: the test split, the calibration split and every OOD split.

Usage: stages/score.py RUN METHOD

Reads params.yaml (fit, methods.METHOD), artifacts/regions/RUN, artifacts/fitted/RUN/METHOD.
Writes artifacts/scores/RUN/METHOD/<split>.parquet; splits whose inputs did not change keep their file.
"""

import sys
from pathlib import Path

from farther.params import section
from farther.registry import build
from farther.scoring.entries import read_entry
from farther.scoring.fit import FitSettings
from farther.scoring.score import score_run

ARTIFACTS = Path("artifacts")


def main(run: str, method: str) -> None:
    """Scores with `method`, an entry of params.yaml's methods, the splits of `run`, an entry of its detectors."""
    read_entry(method, section("methods", method))  # makes a method in a file of one's own known
    settings = build(FitSettings, "section 'fit'", section("fit"))
    fitted = ARTIFACTS / "fitted" / run / method
    path = ARTIFACTS / "scores" / run / method
    for split, what in score_run(ARTIFACTS / "regions" / run, fitted, path, skip=(settings.split,)).items():
        print(f"{run} {method} {split}: {what}")


if __name__ == "__main__":
    main(*sys.argv[1:])
