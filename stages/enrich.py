"""Chooses candidates for the OOD splits of a benchmark: `python stages/enrich.py BENCHMARK`."""

from farther.pipeline.enrich import OUTPUT, main
from farther.stage import run_stage

if __name__ == "__main__":
    run_stage(main, OUTPUT)
