"""Takes τ of each method, and evaluates detectors, methods and proposals of all runs."""

from __future__ import annotations

from farther.pipeline.workers import work_on_runs
from farther.stage import run_stage

OUTPUT = "artifacts/evaluation"
#: Folders with the outputs of each run.
OUTPUTS = (
    OUTPUT,
    "artifacts/metrics",
    "artifacts/outcomes",
    "artifacts/recovered",
    "artifacts/results",
    "artifacts/with_proposals",
    "artifacts/plots/confidence",
    "artifacts/plots/pr",
    "artifacts/plots/reliability",
    "artifacts/plots/roc",
    "artifacts/plots/tau",
    "artifacts/plots/wilderness",
    "artifacts/records/evaluation",
    "artifacts/records/outcomes",
    "artifacts/records/recovered",
    "artifacts/records/with_proposals",
)


def main(*runs: str) -> None:
    """Evaluates runs; all of params.yaml where none is named."""
    work_on_runs("farther.pipeline.runs.evaluate", runs, OUTPUTS)


if __name__ == "__main__":
    run_stage(main, OUTPUT)
