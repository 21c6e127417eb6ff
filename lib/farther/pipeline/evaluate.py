"""Fits the methods on the regions of a run, scores all splits, and evaluates them."""

from __future__ import annotations

from farther.errors import ParameterError
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
    code = {entry.name: " ".join(code_digest("kept", "methods", name) for name in entry.methods) for entry in entries}

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
    evaluate_run(inputs, done.sound, code_digest("kept", "metrics"), log=done.evaluated.extend, user_defined=own)
    store_choice(inputs, done.sound, budget, code_digest("kept", "choice"))
    return str(done), done.failed


if __name__ == "__main__":
    run_stage(main, OUTPUT)
