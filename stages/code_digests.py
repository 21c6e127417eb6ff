"""Digests of the code of each stage, and of each adapter, format and method: what a change of code reruns."""

from farther.pipeline.code_digests import OUTPUT, main
from farther.stage import run_stage

if __name__ == "__main__":
    run_stage(main, OUTPUT)
