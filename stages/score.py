"""Scores all splits of a run by its fitted methods: `python stages/score.py RUN`."""

from farther.pipeline.score import OUTPUT, main
from farther.stage import run_stage

if __name__ == "__main__":
    run_stage(main, OUTPUT)
