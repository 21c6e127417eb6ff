"""Writes the report: `python stages/report.py`."""

from farther.pipeline.report import OUTPUT, main
from farther.stage import run_stage

if __name__ == "__main__":
    run_stage(main, OUTPUT)
