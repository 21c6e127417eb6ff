"""Writes the datasets of the demo world: `python stages/demo.py`."""

from pathlib import Path

from farther.naming.registry import build
from farther.params import section
from farther.stage import run_stage
from farther_demo import DemoWorld, generate_all

OUTPUT = "artifacts/demo"


def main() -> None:
    """Reads `demo`; writes artifacts/demo/<name>, one folder per dataset."""
    generate_all(Path(OUTPUT), build(DemoWorld, "demo", section("demo")))


if __name__ == "__main__":
    run_stage(main, OUTPUT)
