"""Digests of the code of stages, adapters, formats, methods: `python stages/code_digests.py`."""

from functools import partial
from pathlib import Path

from farther.pipeline.code_digests import OUTPUT, main
from farther.stage import run_stage

FOLDERS = (Path(__file__).parent, Path(__file__).parents[1] / "training" / "stages")
SCRIPTS = sorted(script for folder in FOLDERS for script in folder.glob("*.py"))

if __name__ == "__main__":
    run_stage(partial(main, SCRIPTS), OUTPUT)
