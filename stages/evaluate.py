"""Fits the methods on the regions of a run, scores all splits, and evaluates them: python stages/evaluate.py RUN."""

from farther.pipeline.evaluate import OUTPUT, main
from farther.stage import run_stage

if __name__ == "__main__":
    run_stage(main, OUTPUT)
