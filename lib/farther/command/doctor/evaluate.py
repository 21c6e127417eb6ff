"""Checks of the stage `evaluate`, for `farther doctor`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from farther.command.doctor.inspection import Inspection
from farther.errors import Finding, ParameterError, known_names, refused
from farther.evaluation.settings import EvaluationSettings
from farther.naming.registry import build


def check(project: Inspection) -> Iterator[Finding]:
    """The section `evaluate`, and whether the benchmarks have the splits that it names."""
    section = project.section("evaluate")
    yield from refused("evaluate", partial(build, EvaluationSettings, "evaluate", section))
    id_split = section.get("id_split", EvaluationSettings.id_split)
    calibration_split = section.get("calibration_split", EvaluationSettings.calibration_split)
    splits = {"evaluate.id_split": id_split, "evaluate.calibration_split": calibration_split}
    yield from check_id_splits(project, splits)


def check_id_splits(project: Inspection, splits: Mapping[str, str]) -> Iterator[Finding]:
    """Findings on ID splits that benchmarks lack.

    Args:
        project: The project.
        splits: {the parameter that names a split: the split}.
    """
    for benchmark in project.section("benchmarks"):
        checks = []
        for where, split in splits.items():
            checks.append(partial(check_id_split, project, benchmark, where, split))
        yield from refused(f"benchmarks.{benchmark}", *checks)


def check_id_split(project: Inspection, benchmark: str, where: str, split: str) -> None:
    """Refuses an ID split that a benchmark lacks.

    Args:
        project: The project.
        benchmark: Name of the benchmark.
        where: The parameter that names the split, for messages.
        split: The split.

    Raises:
        ParameterError: the benchmark is not valid, or does not have the split.
    """
    known = project.benchmark(benchmark).subsets
    if split not in known:
        problem = f"{where} is {split!r}, which is not an ID split"
        raise ParameterError(f"{problem}. {known_names(known)}")
