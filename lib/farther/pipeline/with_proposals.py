"""Measures what the methods of a run and the proposals that are called unknown give together."""

from __future__ import annotations

from farther.evaluation.files import RunFiles
from farther.evaluation.inputs import RunInputs
from farther.evaluation.kept_with_proposals import update_with_proposals
from farther.evaluation.settings import read_settings
from farther.params import code_digest, run_entry, section
from farther.pipeline.cluster import call
from farther.stage import run_stage
from farther.terminal import say

OUTPUT = "artifacts/with_proposals/{}"


def main(run: str) -> None:
    """Measures a run here or, with `evaluate.engine: ray`, on a machine of the cluster."""
    methods: list[str] = call("farther.pipeline.with_proposals", "measure", run)
    if methods:
        say(f"{run}: measured {', '.join(methods)}")
    else:
        say(f"{run}: nothing to measure")


def measure(run: str) -> list[str]:
    """Reads splits, regions, fitted methods, scores, τ and proposals.

    Writes artifacts/with_proposals/RUN.

    Returns:
        Names of the methods that were measured.
    """
    settings = read_settings(section("evaluate"))
    files = RunFiles(run, run_entry(run)["benchmark"])
    return update_with_proposals(
        RunInputs(files, files.roles, settings), code_digest("with_proposals")
    )


if __name__ == "__main__":
    run_stage(main, OUTPUT)
