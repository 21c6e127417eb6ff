"""Measures how near all benchmarks' splits are to ID images: `python stages/stratify.py`."""

from farther.pipeline.stratify import OUTPUT, main
from farther.stage import run_stage

if __name__ == "__main__":
    run_stage(main, OUTPUT)
