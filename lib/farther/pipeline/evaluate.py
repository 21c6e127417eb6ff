"""Fits the methods on the regions of a run, scores all splits, and evaluates them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from farther.errors import Finding, ParameterError, choose, refused
from farther.evaluation.deploy.choose import store_choice
from farther.evaluation.deploy.results import Budget
from farther.evaluation.evaluate import evaluate_run
from farther.evaluation.files import RunFiles
from farther.evaluation.inputs import RunInputs
from farther.evaluation.settings import EvaluationSettings
from farther.evaluation.threshold import ThresholdSettings, choose_threshold
from farther.params import code_digest, run_entry, section
from farther.registry import build
from farther.scoring.entries import read_entry
from farther.scoring.inputs import FitSettings, RunRegions
from farther.scoring.score import score_run
from farther.stage import run_stage
from farther.terminal import say

if TYPE_CHECKING:
    from farther.pipeline.inspection import Inspection

OUTPUT = "artifacts/evaluation/{}"
#: Settings that change no result: what is written does not have those of the parameters.
HERE = {"engine": EvaluationSettings.engine, "memory": EvaluationSettings.memory}


def main(run: str) -> None:
    """Evaluates a run here or, with `engine: ray`, on a machine of the cluster."""
    settings = build(EvaluationSettings, "params.yaml: evaluate", section("evaluate"))
    if settings.engine == "ray":
        from farther.images.ray import call_on_cluster

        done, failed = call_on_cluster("farther.pipeline.evaluate", "evaluate", run, gigabytes=settings.memory)
    else:
        done, failed = evaluate(run)
    say(f"{run}: {done}")
    if failed:
        raise ParameterError("; ".join(f"methods.{name}: {text}" for name, text in failed.items()))


def evaluate(run: str) -> tuple[str, dict[str, str]]:
    """Reads regions and splits; writes t*, fitted methods, scores, outcomes, metrics and plots below artifacts/.

    Returns:
        What was done, and why methods of extensions failed, by name.
    """
    detector = run_entry(run)
    rule = section("threshold") | detector["threshold"]
    thresholds = build(ThresholdSettings, "params.yaml: threshold", rule)
    fit = build(FitSettings, "params.yaml: fit", section("fit"))
    settings = build(EvaluationSettings, "params.yaml: evaluate", {**section("evaluate"), **HERE})
    budget = build(Budget, "params.yaml: deploy", section("deploy"))
    entries = [read_entry(name, values or {}) for name, values in section("methods").items()]
    code = {entry.name: " ".join(code_digest("kept", "score", name) for name in entry.methods) for entry in entries}

    files = RunFiles(run, detector["benchmark"])
    roles = files.roles
    threshold = choose_threshold(files, thresholds)
    stored, passes = files.root / "regions" / run, files.root / "passes" / run
    splits = files.root / "splits" / files.benchmark
    regions = RunRegions(stored, threshold, fit, files.truth, tuple(roles.test), passes, splits=splits)
    bases = [pairs["of"] for pairs in roles.pairs.values()]
    evaluated = [settings.id_split, settings.calibration_split, thresholds.split, *bases]
    done = score_run(entries, regions, files.root / "fitted" / run, files.root / "scores" / run, code, evaluated)
    inputs = RunInputs(files, roles, settings)
    own = {name: code_digest("kept", "user_defined", name) for name in settings.user_defined}
    evaluate_run(inputs, done.sound, code_digest("kept", "evaluate"), log=done.evaluated.extend, user_defined=own)
    store_choice(inputs, done.sound, budget, code_digest("kept", "choose"))
    return str(done), done.failed


def check(project: Inspection) -> Iterator[Finding]:
    """Entries of `methods`; the sections `threshold`, `fit`, `evaluate` and `deploy`; splits that these name."""
    sections = {"threshold": ThresholdSettings, "fit": FitSettings, "evaluate": EvaluationSettings, "deploy": Budget}
    for name, cls in sections.items():
        yield from refused(name, partial(build, cls, name, project.section(name)))
    fit = project.section("fit")
    if fit.get("split", FitSettings.split) == fit.get("calibration_split", FitSettings.calibration_split):
        problem = "methods are fitted on the regions that τ is chosen on: it keeps a smaller share of other ID regions"
        yield Finding("warnings", "fit", "note", problem)
    passes = {name for run in project.section("detectors").values() for name in run.get("passes") or {}}
    for name, values in project.section("methods").items():
        yield from refused(f"methods.{name}", partial(_check_method, project, name, values or {}))
        if (wanted := (values or {}).get("pass")) is not None and wanted not in passes:
            yield Finding("warnings", f"methods.{name}", "note", f"no run has a pass {wanted!r}")
    for name in project.section("benchmarks"):
        yield from refused(f"benchmarks.{name}", partial(_check_splits, project, name))
    for name, run in project.section("detectors").items():
        rule = {**project.section("threshold"), **(run.get("threshold") or {})}
        yield from refused(f"detectors.{name}", partial(build, ThresholdSettings, "threshold", rule))


def _check_method(project: Inspection, name: str, values: dict[str, Any]) -> None:
    """Refuses a method that is not known, and splits that a benchmark lacks, to search or to fit on."""
    entry = read_entry(name, values)
    for benchmark in project.section("benchmarks") if entry.fit_split is not None else ():
        _check_id_split(f"methods.{name}.fit_on", entry.fit_split, project.benchmark(benchmark).subsets)
    if (choice := entry.search or entry.oracle) is None:
        entry.create()
    else:
        for benchmark in project.section("benchmarks"):
            choose(f"OOD split of {benchmark}", choice.ood_split, project.benchmark(benchmark).splits)


def _check_splits(project: Inspection, benchmark: str) -> None:
    """Refuses ID splits to fit on, calibrate on and evaluate against that a benchmark lacks."""
    known = project.benchmark(benchmark).subsets
    for where, key, usual in (
        ("fit", "split", "train"),
        ("fit", "calibration_split", "val"),
        ("evaluate", "id_split", "test"),
        ("evaluate", "calibration_split", "val"),
    ):
        _check_id_split(f"{where}.{key}", project.section(where).get(key, usual), known)


def _check_id_split(where: str, split: str | None, known: Collection[str]) -> None:
    if split not in known:
        raise ParameterError(f"{where} is {split!r}, which is not an ID split. Known: {', '.join(known)}")


if __name__ == "__main__":
    run_stage(main, OUTPUT)
