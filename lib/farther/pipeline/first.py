"""Evaluates one run before the others: `farther repro --first RUN`.

What it makes is kept: the stages find it.
"""

from __future__ import annotations

from farther.evaluation.files import RunFiles
from farther.evaluation.write import write_run
from farther.pipeline.runs import fit, score
from farther.pipeline.runs.evaluate import evaluate_methods, summary
from farther.stage import run_stage
from farther.text.terminal import say

OUTPUT = "artifacts/evaluation"


def main(run: str) -> None:
    """Fits, scores and evaluates the methods of a run; its proposals may need other runs."""
    say(f"{run}: {fit.work(run)}", flush=True)
    say(f"{run}: {score.work(run)}", flush=True)
    evaluated = evaluate_methods(run)
    files = RunFiles(run, evaluated.evaluation.benchmark)
    write_run(files, evaluated.evaluation, evaluated.frames)
    say(f"{run}: {summary(evaluated)}", flush=True)


if __name__ == "__main__":
    run_stage(main, OUTPUT)
