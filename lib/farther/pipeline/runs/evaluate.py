"""Takes the threshold τ of each method of a run, and evaluates detector, methods and proposals."""

from __future__ import annotations

from farther.detectors.proposals import read_sources
from farther.evaluation.evaluate import EvaluationCode, evaluate_run
from farther.evaluation.files import RunFiles
from farther.evaluation.inputs import RunInputs
from farther.evaluation.kept_proposals import check_second_detectors, update_proposals
from farther.evaluation.kept_with_proposals import update_with_proposals
from farther.evaluation.long_table import long_table, write_long_table
from farther.evaluation.proposals import RecoveredRun, read_recovered
from farther.evaluation.results import Evaluation
from farther.evaluation.settings import EvaluationSettings, read_settings
from farther.params import code_digest, run_entry, section
from farther.registry import build
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
    evaluation, summary = evaluate_methods(run, recovered)
    parts = [summary]
    if recovered is not None:
        parts.append(recovered.summary())

    inputs = RunInputs(files, files.roles, settings)
    measured = update_with_proposals(inputs, code_digest("kept", "evaluate"))
    if measured:
        parts.append(f"with proposals: {', '.join(measured)}")
    if recovered is not None:
        # With the results of methods and proposals together, which need the methods' thresholds.
        write_long_table(files, long_table(evaluation, read_recovered(files)))
    return "; ".join(parts)


def evaluate_methods(run: str, recovered: RecoveredRun | None = None) -> tuple[Evaluation, str]:
    """Evaluates detector and methods.

    Writes evaluation, outcomes, results, metrics and plots.

    Args:
        run: Name of the run.
        recovered: Results of its proposals; None where it has none.

    Returns:
        The evaluation; and which methods were evaluated, and how many are unchanged, in words.
    """
    settings = read_settings(section("evaluate"))
    files = RunFiles(run, run_entry(run)["benchmark"])
    tau = build(FitSection, "params.yaml: fit", section("fit")).tau_settings()
    user_defined = {
        name: code_digest("kept", "user_defined", name) for name in settings.user_defined
    }
    metrics = " ".join([code_digest("kept", "evaluate"), code_digest("files", "evaluate")])
    code = EvaluationCode(metrics, user_defined)
    evaluation, computed = evaluate_run(
        RunInputs(files, files.roles, settings), tau, code, recovered
    )
    unchanged = len(evaluation.methods.keys() - set(computed))
    parts = []
    if computed:
        parts.append(f"evaluated {', '.join(computed)}")
    if unchanged == 1:
        parts.append("1 method unchanged")
    elif unchanged:
        parts.append(f"{unchanged} methods unchanged")
    return evaluation, "; ".join(parts) or "no methods"


def _measure_proposals(files: RunFiles, settings: EvaluationSettings) -> RecoveredRun | None:
    """What the run's proposals recover; None where there are none."""
    entries = section("detectors")
    sources = read_sources(files.run, run_entry(files.run)["proposals"])
    check_second_detectors(files.run, sources, entries)

    def files_of(name: str) -> RunFiles:
        return RunFiles(name, entries[name]["benchmark"])

    return update_proposals(files, sources, settings, files_of, code_digest("kept", "evaluate"))
