"""Evaluates one run before the others: `farther repro --first RUN`.

What it makes is kept: the stages find it.
"""

from __future__ import annotations

from farther.pipeline.runs import fit, score
from farther.pipeline.runs.evaluate import evaluate_methods
from farther.stage import run_stage
from farther.terminal import say

OUTPUT = "artifacts/evaluation"


def main(run: str) -> None:
    """Fits, scores and evaluates the methods of a run; its proposals may need other runs."""
    say(f"{run}: {fit.work(run)}", flush=True)
    say(f"{run}: {score.work(run)}", flush=True)
    _, summary = evaluate_methods(run)
    say(f"{run}: {summary}", flush=True)


if __name__ == "__main__":
    run_stage(main, OUTPUT)
