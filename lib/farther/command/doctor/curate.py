"""Checks of the stage `curate`, for `farther doctor`."""

from __future__ import annotations

from collections.abc import Iterator

from farther.command.doctor.inspection import ARTIFACTS, Inspection
from farther.curation.check import check_benchmark
from farther.errors import Finding
from farther.tables.stored import curate_warnings


def check(project: Inspection) -> Iterator[Finding]:
    """Entries of `benchmarks` and the files that they name.

    Also what the stage warned about when it ran last.
    """
    for name, params in project.section("benchmarks").items():
        yield from check_benchmark(name, params, project.section("datasets"))
        for text in curate_warnings(ARTIFACTS / "splits" / name):
            yield Finding("warnings", name, "note", text)
