"""Chooses τ of each method, evaluates detector and methods: `python stages/evaluate.py RUN`."""

from farther.pipeline.evaluate import OUTPUT, main
from farther.stage import run_stage

if __name__ == "__main__":
    run_stage(main, OUTPUT)
