"""Runs a detector over its benchmark's splits that changed: `python stages/infer.py RUN`."""

from farther.pipeline.infer import OUTPUT, main
from farther.stage import run_stage

if __name__ == "__main__":
    run_stage(main, OUTPUT)
