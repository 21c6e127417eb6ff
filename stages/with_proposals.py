"""Measures methods and proposals of a run together: `python stages/with_proposals.py RUN`."""

from farther.pipeline.with_proposals import OUTPUT, main
from farther.stage import run_stage

if __name__ == "__main__":
    run_stage(main, OUTPUT)
