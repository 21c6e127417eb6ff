"""Measures what each method costs per image on this machine: python stages/cost.py."""

from farther.pipeline.cost import OUTPUT, main
from farther.stage import run_stage

if __name__ == "__main__":
    run_stage(main, OUTPUT)
