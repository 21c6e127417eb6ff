"""Measures what proposals find of the unknown objects that detectors miss: python stages/proposals.py."""

from farther.pipeline.proposals import OUTPUT, main
from farther.stage import run_stage

if __name__ == "__main__":
    run_stage(main, OUTPUT)
