"""Scores all splits of a run by its fitted methods."""

from __future__ import annotations

from functools import partial

from farther.errors import ParameterError
from farther.evaluation.paths import RunFiles
from farther.incremental.code import code_digest
from farther.naming.registry import build
from farther.params import run_entry, section
from farther.scoring.device import ScoringSettings
from farther.scoring.score import score_run


def work(run: str) -> str:
    """Reads fitted methods, regions and passes; writes artifacts/scores.

    Returns:
        Names of the methods that were scored.

    Raises:
        ParameterError: section `scoring` is wrong, or names a GPU that PyTorch cannot use here; or
            methods of extensions failed, and the others are scored.
    """
    settings = build(ScoringSettings, "scoring", section("scoring"))
    files = RunFiles(run, run_entry(run)["benchmark"])
    scores = files.root / "scores" / run
    summary = score_run(
        files.all_regions,
        files.all_passes,
        files.all_fitted,
        scores,
        partial(code_digest, "kept", "score"),
        settings.device,
    )
    if summary.failed:
        problems = [f"methods.{name}: {text}" for name, text in summary.failed.items()]
        raise ParameterError("; ".join(problems))
    return str(summary)
