"""Checks of the stage `enrich`, for `farther doctor`."""

from __future__ import annotations

from collections.abc import Iterator

from farther.command.doctor.inspection import Inspection
from farther.curation.check import check_enrichment
from farther.errors import Finding


def check(project: Inspection) -> Iterator[Finding]:
    """Entries of `enrich`."""
    benchmarks = project.section("benchmarks")
    datasets = project.section("datasets")
    for name, params in project.section("enrich").items():
        yield from check_enrichment(name, params or {}, benchmarks, datasets)
