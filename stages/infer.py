"""Runs a detector over the splits of its benchmark that changed, or imports what another program detected in them."""

from farther.pipeline.infer import OUTPUT, main
from farther.stage import run_stage

if __name__ == "__main__":
    run_stage(main, OUTPUT)
