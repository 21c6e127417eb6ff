"""Chooses what to deploy of a run for the budget of params.yaml."""

from __future__ import annotations

from farther.evaluation.deploy.choose import write_choice
from farther.evaluation.deploy.results import Budget
from farther.evaluation.files import RunFiles
from farther.evaluation.inputs import RunInputs
from farther.evaluation.settings import read_settings
from farther.params import code_digest, run_entry, section
from farther.registry import build
from farther.stage import run_stage
from farther.terminal import say

OUTPUT = "artifacts/choices/{}.json"


def main(run: str) -> None:
    """Reads splits, regions, t*, fitted methods and scores.

    Writes artifacts/choices/RUN.json, and artifacts/choices/RUN, which is kept from run to run.
    """
    settings = read_settings(section("evaluate"))
    budget = build(Budget, "params.yaml: deploy", section("deploy"))
    files = RunFiles(run, run_entry(run)["benchmark"])
    choices = write_choice(RunInputs(files, files.roles, settings), budget, code_digest("choose"))
    if choices.choice is None:
        say(f"{run}: {' '.join(choices.notes)}")
    elif choices.choice.reached:
        say(f"{run}: {choices.choice.method}")
    else:
        say(f"{run}: no method within the limits; the closest is {choices.choice.method}")


if __name__ == "__main__":
    run_stage(main, OUTPUT)
