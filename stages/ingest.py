"""Reads a dataset into the tables `images` and `objects`: `python stages/ingest.py voc`."""

from farther.pipeline.ingest import OUTPUT, main
from farther.stage import run_stage

if __name__ == "__main__":
    run_stage(main, OUTPUT)
