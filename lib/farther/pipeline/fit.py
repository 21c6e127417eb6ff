"""Takes the operating threshold t* of each run, and fits the methods to its training regions."""

from __future__ import annotations

from farther.pipeline.workers import work_on_runs
from farther.stage import run_stage

OUTPUT = "artifacts/fitted"
#: Folders with the outputs of each run.
OUTPUTS = (
    OUTPUT,
    "artifacts/thresholds",
    "artifacts/truth",
    "artifacts/records/fitted",
)


def main(*runs: str) -> None:
    """Fits the methods of runs; of all of params.yaml where none is named."""
    work_on_runs("farther.pipeline.runs.fit", runs, OUTPUTS)


if __name__ == "__main__":
    run_stage(main, OUTPUT)
