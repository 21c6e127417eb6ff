"""Scores all splits of each run by its fitted methods."""

from __future__ import annotations

from farther.params import section
from farther.pipeline.workers import work_on_runs
from farther.stage import run_stage

OUTPUT = "artifacts/scores"
#: Folders with the outputs of each run.
OUTPUTS = (OUTPUT, "artifacts/records/scores")


def main(*runs: str) -> None:
    """Scores runs; all of params.yaml where none is named."""
    uses_gpu = section("scoring").get("device", "cpu") != "cpu"
    work_on_runs("farther.pipeline.runs.score", runs, OUTPUTS, one_at_a_time=uses_gpu)


if __name__ == "__main__":
    run_stage(main, OUTPUT)
