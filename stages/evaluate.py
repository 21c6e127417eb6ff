"""Evaluates a run with all methods on all its OOD splits: python stages/evaluate.py RUN."""

import sys

from farther import curation
from farther.evaluation.evaluate import evaluate_run
from farther.evaluation.files import RunFiles
from farther.evaluation.settings import EvaluationSettings
from farther.params import section
from farther.registry import build


def main(run: str) -> None:
    """Reads regions, scores and objects; writes metrics/RUN, plots/RUN and evaluation/RUN.json below artifacts/."""
    benchmark = section("detectors", run)["benchmark"]
    settings = build(EvaluationSettings, "params.yaml: evaluate", section("evaluate"))
    files = RunFiles(run, benchmark)
    tested = curation.benchmark(benchmark, section("benchmarks", benchmark)).test_splits
    evaluate_run(files, list(section("methods")), tested, settings, log=print)


if __name__ == "__main__":
    main(*sys.argv[1:])
