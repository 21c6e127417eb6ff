"""Writes the report."""

from __future__ import annotations

from farther.incremental.code import code_digest
from farther.params import section
from farther.pipeline.workers import read_resources, usual_jobs
from farther.report import build
from farther.stage import run_stage
from farther.text.terminal import say

OUTPUT = "artifacts/report"

SECTIONS = (
    "datasets",
    "benchmarks",
    "detectors",
    "inference",
    "threshold",
    "fit",
    "methods",
    "evaluate",
    "report",
)


def main() -> None:
    """Reads all metrics, curves, outcomes and splits; writes artifacts/report."""
    params = {name: section(name) for name in SECTIONS}
    jobs = usual_jobs(list(section("detectors")), read_resources())
    say(f"Report: {build(params, code=code_digest('report'), jobs=jobs)}")


if __name__ == "__main__":
    run_stage(main, OUTPUT)
