"""Takes the threshold τ of each method of a run, and evaluates detector, methods and proposals."""

from __future__ import annotations

from farther.detectors.proposal_sources import read_sources
from farther.evaluation.evaluate import EvaluatedRun, EvaluationCode, compute_metrics
from farther.evaluation.files import RunFiles
from farther.evaluation.inputs import RunInputs
from farther.evaluation.kept_proposals import check_second_detectors, update_proposals
from farther.evaluation.kept_with_proposals import update_with_proposals
from farther.evaluation.recovery import RecoveredRun, read_recovered
from farther.evaluation.settings import EvaluationSettings, read_settings
from farther.evaluation.write import write_run
from farther.incremental.code import code_digest
from farther.naming.registry import build
from farther.params import run_entry, section
from farther.scoring.inputs import FitSection


def work(run: str) -> str:
    """Reads splits, regions, proposals, fitted methods and scores.

    Writes evaluation, outcomes, results, metrics, plots, recovered and with_proposals.

    Returns:
        What was evaluated, and what the proposals recover.
    """
    settings = read_settings(section("evaluate"))
    files = RunFiles(run, run_entry(run)["benchmark"])
    recovered = _measure_proposals(files, settings)
    evaluated = evaluate_methods(run)
    parts = [summary(evaluated)]
    if recovered is not None:
        parts.append(recovered.summary())

    # Proposals and methods together need the methods' thresholds τ.
    inputs = RunInputs(files, files.roles, settings)
    measured = update_with_proposals(inputs, code_digest("kept", "evaluate"))
    if measured:
        parts.append(f"with proposals: {', '.join(measured)}")
    if recovered is not None:
        recovered = read_recovered(files)
    write_run(files, evaluated.evaluation, evaluated.frames, recovered)
    return "; ".join(parts)


def evaluate_methods(run: str) -> EvaluatedRun:
    """Computes the metrics of a run's detector and methods; `write_run` writes them."""
    settings = read_settings(section("evaluate"))
    files = RunFiles(run, run_entry(run)["benchmark"])
    tau = build(FitSection, "params.yaml: fit", section("fit")).tau_settings()
    user_defined = {
        name: code_digest("kept", "user_defined", name) for name in settings.user_defined
    }
    metrics = " ".join([code_digest("kept", "evaluate"), code_digest("files", "evaluate")])
    code = EvaluationCode(metrics, user_defined)
    return compute_metrics(RunInputs(files, files.roles, settings), tau, code)


def summary(evaluated: EvaluatedRun) -> str:
    """Which methods were evaluated, and how many are unchanged, in words."""
    unchanged = len(evaluated.evaluation.methods.keys() - set(evaluated.computed))
    parts = []
    if evaluated.computed:
        parts.append(f"evaluated {', '.join(evaluated.computed)}")
    if unchanged == 1:
        parts.append("1 method unchanged")
    elif unchanged:
        parts.append(f"{unchanged} methods unchanged")
    return "; ".join(parts) or "no methods"


def _measure_proposals(files: RunFiles, settings: EvaluationSettings) -> RecoveredRun | None:
    """What the run's proposals recover; None where there are none."""
    entries = section("detectors")
    sources = read_sources(files.run, run_entry(files.run)["proposals"])
    check_second_detectors(files.run, sources, entries)

    def files_of(name: str) -> RunFiles:
        return RunFiles(name, entries[name]["benchmark"])

    return update_proposals(files, sources, settings, files_of, code_digest("kept", "evaluate"))
