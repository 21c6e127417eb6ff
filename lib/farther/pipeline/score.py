"""Scores all splits of a run by its fitted methods."""

from __future__ import annotations

from functools import partial

from farther.errors import ParameterError
from farther.evaluation.paths import RunFiles
from farther.params import code_digest, run_entry, section
from farther.pipeline.cluster import call
from farther.registry import build
from farther.scoring.device import ScoringSettings
from farther.scoring.score import ScoreSummary, score_run
from farther.stage import run_stage
from farther.terminal import say

OUTPUT = "artifacts/scores/{}"


def main(run: str) -> None:
    """Scores a run here or, with `evaluate.engine: ray`, on a machine of the cluster."""
    summary: ScoreSummary = call("farther.pipeline.score", "score", run)
    say(f"{run}: {summary}")
    if summary.failed:
        problems = [f"methods.{name}: {text}" for name, text in summary.failed.items()]
        raise ParameterError("; ".join(problems))


def score(run: str) -> ScoreSummary:
    """Reads fitted methods, regions and passes; writes artifacts/scores.

    Returns:
        Names of the methods that were scored, and why methods of extensions failed.

    Raises:
        ParameterError: section `scoring` is wrong, or names a GPU that PyTorch cannot use here.
    """
    settings = build(ScoringSettings, "scoring", section("scoring"))
    files = RunFiles(run, run_entry(run)["benchmark"])
    scores = files.root / "scores" / run
    return score_run(
        files.all_regions,
        files.all_passes,
        files.all_fitted,
        scores,
        partial(code_digest, "kept", "score"),
        settings.device,
    )


if __name__ == "__main__":
    run_stage(main, OUTPUT)
