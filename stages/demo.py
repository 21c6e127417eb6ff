"""Writes the datasets of the demo world: `python stages/demo.py`."""

from pathlib import Path

from farther.params import section
from farther.registry import build
from farther.stage import run_stage
from farther_demo import NAMES, DemoWorld, generate

OUTPUT = "artifacts/demo"


def main() -> None:
    """Reads `demo`; writes artifacts/demo/<name>, one folder a dataset."""
    world = build(DemoWorld, "demo", section("demo"))
    for name in NAMES:
        generate(name, Path(OUTPUT) / name, world)


if __name__ == "__main__":
    run_stage(main, OUTPUT)
