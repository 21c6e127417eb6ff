"""Checks of the section `proposals`, for `farther doctor`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from farther.command.doctor.inspection import Inspection
from farther.detectors.proposal_sources import read_sources
from farther.errors import Finding, refused
from farther.evaluation.kept_proposals import check_second_detectors


def check(project: Inspection) -> Iterator[Finding]:
    """Second detectors of the runs."""
    entries = project.section("detectors")
    for run in entries:
        yield from refused(f"detectors.{run}", partial(_check_run, run, entries))


def _check_run(run: str, entries: Mapping[str, Any]) -> None:
    sources = read_sources(run, (entries[run] or {}).get("proposals"))
    check_second_detectors(run, sources, entries)
