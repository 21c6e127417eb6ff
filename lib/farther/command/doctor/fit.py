"""Checks of the stages `fit` and `score`, for `farther doctor`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from farther.command.doctor.evaluate import check_id_split, check_id_splits
from farther.command.doctor.inspection import Inspection
from farther.errors import FartherError, Finding, choose, refused
from farther.evaluation.threshold import ThresholdSettings
from farther.naming.registry import build
from farther.scoring.device import ScoringSettings
from farther.scoring.entries import read_entry
from farther.scoring.inputs import FitSection


def check(project: Inspection) -> Iterator[Finding]:
    """Sections `threshold` (of each run, too), `fit` and `scoring`; `methods`; ID splits."""
    threshold = project.section("threshold")
    yield from refused("threshold", partial(build, ThresholdSettings, "threshold", threshold))
    yield from _check_fit(project)
    scoring = project.section("scoring")
    yield from refused("scoring", partial(build, ScoringSettings, "scoring", scoring))
    passes: set[str] = set()
    for run, entry in project.section("detectors").items():
        passes.update((entry or {}).get("passes") or {})
        rule = {**threshold, **((entry or {}).get("threshold") or {})}
        yield from refused(f"detectors.{run}", partial(build, ThresholdSettings, "threshold", rule))
    for name, values in project.section("methods").items():
        yield from refused(f"methods.{name}", partial(_check_method, project, name, values or {}))
        yield from _absent_runs(project, name, (values or {}).get("runs") or [])
        pass_name = (values or {}).get("pass")
        if pass_name is not None and pass_name not in passes:
            yield Finding("warnings", f"methods.{name}", "note", f"no run has a pass {pass_name!r}")
        yield from _lacking_benchmarks(project, name, values or {})
        yield from _absent_passes(project, name, values or {}, passes)


def _absent_runs(project: Inspection, name: str, runs: Any) -> Iterator[Finding]:
    """Notes on the runs of a method's entry that the project does not have; it may have others."""
    if not isinstance(runs, list):
        return
    for run in runs:
        if run not in project.section("detectors"):
            yield Finding("warnings", f"methods.{name}", "note", f"runs: no run is called {run!r}")


def _absent_passes(
    project: Inspection, name: str, values: dict[str, Any], passes: set[str]
) -> Iterator[Finding]:
    """Notes on the passes that no run has, of those that an entry reads beside the detections."""
    try:
        beside = read_entry(name, values, project.section("methods")).passes_beside
    except FartherError:  # `_check_method` says what is wrong
        return
    for pass_name in beside:
        if pass_name not in passes:
            yield Finding("warnings", f"methods.{name}", "note", f"no run has a pass {pass_name!r}")


def _lacking_benchmarks(
    project: Inspection, name: str, values: dict[str, Any]
) -> Iterator[Finding]:
    """A note on the benchmarks without the OOD split that a method's entry learns from.

    `_check_method` refuses a split that no benchmark has.
    """
    try:
        ood_split = read_entry(name, values, project.section("methods")).ood_split
        splits_by_benchmark = _splits_by_benchmark(project)
    except FartherError:  # `_check_method` says what is wrong
        return
    if ood_split is None:
        return
    lacking = []
    for benchmark, splits in splits_by_benchmark.items():
        if ood_split not in splits:
            lacking.append(benchmark)
    if 0 < len(lacking) < len(splits_by_benchmark):
        problem = (
            f"no split {ood_split!r} in {', '.join(lacking)}: it does not apply to the runs there"
        )
        yield Finding("warnings", f"methods.{name}", "note", problem)


def _splits_by_benchmark(project: Inspection) -> dict[str, list[str]]:
    """The names of the OOD splits of each benchmark."""
    splits_by_benchmark = {}
    for name in project.section("benchmarks"):
        benchmark = project.benchmark(name)
        splits_by_benchmark[name] = [*benchmark.splits, *benchmark.derived_splits]
    return splits_by_benchmark


def _check_fit(project: Inspection) -> Iterator[Finding]:
    """The section `fit`, and whether the benchmarks have the splits that it names."""
    section = project.section("fit")
    yield from refused("fit", partial(build, FitSection, "fit", section))
    split = section.get("split", FitSection.split)
    calibration_split = section.get("calibration_split", FitSection.calibration_split)
    if split == calibration_split:
        problem = (
            "methods are fitted on the regions that τ is chosen on: "
            "it keeps a smaller share of other ID regions"
        )
        yield Finding("warnings", "fit", "note", problem)
    splits = {"fit.split": split, "fit.calibration_split": calibration_split}
    yield from check_id_splits(project, splits)


def _check_method(project: Inspection, name: str, values: dict[str, Any]) -> None:
    """Refuses unknown methods and runs, and splits to learn from that benchmarks lack.

    An ID split that one of them lacks, an OOD split that all of them lack.
    """
    entry = read_entry(name, values, project.section("methods"))
    runs = project.section("detectors")
    if entry.runs and not set(entry.runs) & set(runs):
        choose(f"run in methods.{name}.runs", entry.runs[0], runs)
    if entry.fit_split is not None:
        for benchmark in project.section("benchmarks"):
            check_id_split(project, benchmark, f"methods.{name}.fit_on", entry.fit_split)
    ood_split = entry.ood_split
    if ood_split is None:
        return
    splits_by_benchmark = _splits_by_benchmark(project)
    known: list[str] = []
    for splits in splits_by_benchmark.values():
        known += splits
    choose(f"OOD split of {' or '.join(splits_by_benchmark)}", ood_split, known)
