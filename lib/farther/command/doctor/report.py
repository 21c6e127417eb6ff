"""Checks of the stage `report`, for `farther doctor`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from farther.command.doctor.inspection import Inspection
from farther.errors import Finding, choose, refused
from farther.naming.canonical_names import choose_entry
from farther.naming.registry import build
from farther.report.settings import ReportSettings


def check(project: Inspection) -> Iterator[Finding]:
    """The section `report`, and the method and the runs that it names."""
    settings = partial(build, ReportSettings, "report", project.section("report"))
    yield from refused("report", settings, partial(_check_names, project))


def _check_names(project: Inspection) -> None:
    settings = project.section("report")
    method = settings.get("method")
    if method is not None:
        choose_entry("method", str(method), project.section("methods"))
    for run in settings.get("drawn") or ():
        choose("run of report.drawn", str(run), project.section("detectors"))
    for name, runs in (settings.get("seeds") or {}).items():
        for run in runs:
            choose(f"run of report.seeds.{name}", str(run), project.section("detectors"))
