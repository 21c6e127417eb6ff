"""Takes the threshold τ of each method of a run, and evaluates detector and methods."""

from __future__ import annotations

from farther.evaluation.evaluate import EvaluationCode, evaluate_run
from farther.evaluation.files import RunFiles
from farther.evaluation.inputs import RunInputs
from farther.evaluation.settings import read_settings
from farther.params import code_digest, run_entry, section
from farther.pipeline.cluster import call
from farther.registry import build
from farther.scoring.inputs import FitSection
from farther.stage import run_stage
from farther.terminal import say

OUTPUT = "artifacts/evaluation/{}"


def main(run: str) -> None:
    """Evaluates a run here or, with `evaluate.engine: ray`, on a machine of the cluster."""
    summary: str = call("farther.pipeline.evaluate", "evaluate", run)
    say(f"{run}: {summary}")


def evaluate(run: str) -> str:
    """Reads splits, regions, fitted methods, scores and proposals.

    Writes evaluation, outcomes, metrics and plots.

    Returns:
        Summary of the evaluated and of the unchanged methods.
    """
    settings = read_settings(section("evaluate"))
    tau = build(FitSection, "params.yaml: fit", section("fit")).tau_settings()
    user_defined = {
        name: code_digest("kept", "user_defined", name) for name in settings.user_defined
    }
    metrics = " ".join([code_digest("kept", "evaluate"), code_digest("files", "evaluate")])
    code = EvaluationCode(metrics, user_defined)

    files = RunFiles(run, run_entry(run)["benchmark"])
    evaluation, computed = evaluate_run(RunInputs(files, files.roles, settings), tau, code)
    unchanged = len(evaluation.methods.keys() - set(computed))
    parts = []
    if computed:
        parts.append(f"evaluated {', '.join(computed)}")
    if unchanged == 1:
        parts.append("1 method unchanged")
    elif unchanged:
        parts.append(f"{unchanged} methods unchanged")
    return "; ".join(parts) or "no methods"


if __name__ == "__main__":
    run_stage(main, OUTPUT)
