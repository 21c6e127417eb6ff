"""Makes a dataset from images of another one: `python stages/derive.py corrupt voc_shifted`."""

from farther.pipeline.derive import OUTPUT, main
from farther.stage import run_stage

if __name__ == "__main__":
    run_stage(main, OUTPUT)
