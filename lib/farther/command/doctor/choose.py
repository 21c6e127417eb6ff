"""Checks of the stage `choose`, for `farther doctor`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from farther.command.doctor.inspection import ARTIFACTS, Inspection
from farther.errors import Finding, refused
from farther.evaluation.deploy.results import Budget
from farther.evaluation.settings import read_settings
from farther.naming.registry import build
from farther.tables.parquet import count_rows


def check(project: Inspection) -> Iterator[Finding]:
    """The section `deploy`, and whether there are enough images to show its limits."""
    wrong = list(refused("deploy", partial(build, Budget, "deploy", project.section("deploy"))))
    yield from wrong
    if wrong or not project.section("deploy"):
        return
    budget = build(Budget, "deploy", project.section("deploy"))
    if "false_alarms" not in budget.limits:
        return
    split = read_settings(project.section("evaluate")).calibration_split
    for name in project.section("benchmarks"):
        count = _count(project, name, split)
        if count is not None and budget.too_few("false_alarms", count):
            yield Finding("warnings", name, "note", budget.too_few("false_alarms", count))


def _count(project: Inspection, benchmark: str, split: str) -> int | None:
    """Number of images of an ID split: as curated, else as its annotations say; None if unknown."""
    table = ARTIFACTS / "splits" / benchmark / split / "images.parquet"
    if table.is_file():
        return count_rows(table)
    checked = project.benchmark(benchmark)
    if split not in checked.id_sources:
        return None
    subset = project.subsets.get(checked.id_sources[split])
    if subset is None or subset.annotations is None:
        return None
    begin, end = checked.shares(split)
    count = round((end - begin) * len(subset.annotations.images))
    return min(count, checked.most.get(split, count))
