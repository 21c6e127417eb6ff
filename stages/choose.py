"""Chooses what to deploy of a run: `python stages/choose.py RUN`."""

from farther.pipeline.choose import OUTPUT, main
from farther.stage import run_stage

if __name__ == "__main__":
    run_stage(main, OUTPUT)
