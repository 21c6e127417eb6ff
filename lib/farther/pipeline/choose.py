"""Chooses what to deploy of each run, and measures what methods cost per image."""

from __future__ import annotations

from farther.pipeline.workers import work_on_runs
from farther.stage import run_stage

OUTPUT = "artifacts/choices"
#: Folders with the outputs of each run.
OUTPUTS = (OUTPUT, "artifacts/dials", "artifacts/records/choices")


def main(*runs: str) -> None:
    """Chooses for runs; for all of params.yaml where none is named, and then measures costs."""
    work_on_runs("farther.pipeline.runs.choose", runs, OUTPUTS)
    if not runs:
        # It imports readers of images, which the choice does not need.
        from farther.pipeline.costs import measure_costs

        # When no other run is worked on: it measures times.
        measure_costs()


if __name__ == "__main__":
    run_stage(main, OUTPUT)
