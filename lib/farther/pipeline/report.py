"""Writes the report."""

from farther.params import code_digest, section
from farther.report import build
from farther.stage import run_stage

OUTPUT = "artifacts/report"

SECTIONS = ("datasets", "benchmarks", "detectors", "inference", "threshold", "fit", "methods", "evaluate", "report")


def main() -> None:
    """Reads all metrics, curves, outcomes and splits; writes artifacts/report."""
    print(f"Report: {build({name: section(name) for name in SECTIONS}, code=code_digest('report'))}")


if __name__ == "__main__":
    run_stage(main, OUTPUT)
