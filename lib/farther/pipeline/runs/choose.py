"""Chooses what to deploy of a run for the budget of params.yaml."""

from __future__ import annotations

from farther.detectors.proposal_sources import network_source
from farther.evaluation.deploy.choose import write_choice
from farther.evaluation.deploy.results import Budget
from farther.evaluation.files import RunFiles
from farther.evaluation.inputs import RunInputs
from farther.evaluation.settings import read_settings
from farther.incremental.code import code_digest
from farther.naming.registry import build
from farther.params import run_entry, section
from farther.scoring.inputs import FitSection


def work(run: str) -> str:
    """Reads splits, regions, proposals, t*, fitted methods and scores.

    Writes artifacts/choices/RUN.json, artifacts/dials/RUN.json, and artifacts/choices/RUN, which is
    kept from run to run.

    Returns:
        The chosen method, or why there is none.
    """
    settings = read_settings(section("evaluate"))
    budget = build(Budget, "params.yaml: deploy", section("deploy"))
    entry = run_entry(run)
    files = RunFiles(run, entry["benchmark"])
    inputs = RunInputs(files, files.roles, settings)
    source = network_source(run, entry["proposals"])
    tau = build(FitSection, "params.yaml: fit", section("fit")).tau_settings()
    choices = write_choice(inputs, budget, tau, code_digest("choose"), source)
    if choices.choice is None:
        return " ".join(choices.notes)
    if choices.choice.reached:
        return choices.choice.method
    return f"no method within the limits; the closest is {choices.choice.method}"
