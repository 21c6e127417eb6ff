"""Chooses what to deploy of a run for the budget of params.yaml."""

from __future__ import annotations

from farther.evaluation.deploy.choose import write_choice
from farther.evaluation.deploy.results import Budget
from farther.evaluation.files import RunFiles
from farther.evaluation.inputs import RunInputs
from farther.evaluation.settings import read_settings
from farther.params import code_digest, run_entry, section
from farther.registry import build


def work(run: str) -> str:
    """Reads splits, regions, t*, fitted methods and scores.

    Writes artifacts/choices/RUN.json, and artifacts/choices/RUN, which is kept from run to run.

    Returns:
        The chosen method, or why there is none.
    """
    settings = read_settings(section("evaluate"))
    budget = build(Budget, "params.yaml: deploy", section("deploy"))
    files = RunFiles(run, run_entry(run)["benchmark"])
    choices = write_choice(RunInputs(files, files.roles, settings), budget, code_digest("choose"))
    if choices.choice is None:
        return " ".join(choices.notes)
    if choices.choice.reached:
        return choices.choice.method
    return f"no method within the limits; the closest is {choices.choice.method}"
