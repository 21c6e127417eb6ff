"""Measures how near the splits of one benchmark are to its ID images: `python stages/stratify.py voc`."""

from farther.pipeline.stratify import OUTPUT, main
from farther.stage import run_stage

if __name__ == "__main__":
    run_stage(main, OUTPUT)
