"""Measures which missed objects a run's proposals match: `python stages/proposals.py RUN`."""

from farther.pipeline.proposals import OUTPUT, main
from farther.stage import run_stage

if __name__ == "__main__":
    run_stage(main, OUTPUT)
