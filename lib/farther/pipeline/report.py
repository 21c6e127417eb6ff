"""Writes the report."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from farther.cores import count_cores
from farther.errors import Finding, choose, refused
from farther.params import code_digest, section
from farther.report import build
from farther.stage import run_stage
from farther.terminal import say

if TYPE_CHECKING:
    from farther.pipeline.inspection import Inspection

OUTPUT = "artifacts/report"

SECTIONS = ("datasets", "benchmarks", "detectors", "inference", "threshold", "fit", "methods", "evaluate", "report")


def main() -> None:
    """Reads all metrics, curves, outcomes and splits; writes artifacts/report."""
    params, code = {name: section(name) for name in SECTIONS}, code_digest("report")
    say(f"Report: {build(params, code=code, processes=min(2, count_cores()))}")


def check(project: Inspection) -> Iterator[Finding]:
    """The section `report`, and the method and the runs that it names."""
    from farther.registry import build as build_params
    from farther.report.settings import ReportSettings

    settings = project.section("report")
    yield from refused(
        "report", lambda: build_params(ReportSettings, "report", settings), lambda: _check_names(project)
    )


def _check_names(project: Inspection) -> None:
    settings = project.section("report")
    if settings.get("method") is not None:
        choose("method", str(settings["method"]), project.section("methods"))
    for name, runs in (settings.get("seeds") or {}).items():
        for run in runs:
            choose(f"run of report.seeds.{name}", str(run), project.section("detectors"))


if __name__ == "__main__":
    run_stage(main, OUTPUT)
