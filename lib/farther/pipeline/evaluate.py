"""Fits the methods on the regions of a run, scores all splits, and evaluates them."""

from farther.errors import ParameterError
from farther.evaluation.choice import Budget
from farther.evaluation.choosing import store_choice
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

OUTPUT = "artifacts/evaluation/{}"


def main(run: str) -> None:
    """Reads regions and splits; writes t*, fitted methods, scores, outcomes, metrics and plots below artifacts/."""
    detector = run_entry(run)
    rule = section("threshold") | detector["threshold"]
    thresholds = build(ThresholdSettings, "params.yaml: threshold", rule)
    fit = build(FitSettings, "params.yaml: fit", section("fit"))
    settings = build(EvaluationSettings, "params.yaml: evaluate", section("evaluate"))
    budget = build(Budget, "params.yaml: deploy", section("deploy"))
    entries = [read_entry(name, values or {}) for name, values in section("methods").items()]
    code = {entry.name: " ".join(code_digest("kept", "methods", name) for name in entry.methods) for entry in entries}

    files = RunFiles(run, detector["benchmark"])
    roles = files.roles
    threshold = choose_threshold(files, thresholds)
    stored, passes = files.root / "regions" / run, files.root / "passes" / run
    regions = RunRegions(stored, threshold, fit, files.truth, tuple(roles.test), passes)
    done = score_run(entries, regions, files.root / "fitted" / run, files.root / "scores" / run, code)
    inputs = RunInputs(files, roles, settings)
    evaluate_run(inputs, done.sound, code_digest("kept", "metrics"), log=done.evaluated.extend)
    store_choice(inputs, done.sound, budget, code_digest("kept", "choice"))
    print(f"{run}: {done}")
    if done.failed:
        raise ParameterError("; ".join(f"methods.{name}: {text}" for name, text in done.failed.items()))


if __name__ == "__main__":
    run_stage(main, OUTPUT)
