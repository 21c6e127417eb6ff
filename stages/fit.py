"""Takes t* of a run and fits the methods to its training regions: `python stages/fit.py RUN`."""

from farther.pipeline.fit import OUTPUT, main
from farther.stage import run_stage

if __name__ == "__main__":
    run_stage(main, OUTPUT)
