"""Makes the splits of all benchmarks: `python stages/curate.py`."""

from farther.pipeline.curate import OUTPUT, main
from farther.stage import run_stage

if __name__ == "__main__":
    run_stage(main, OUTPUT)
