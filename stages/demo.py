"""Writes one dataset of the demo world: `python stages/demo.py voc` (or bdd, coco, openimages, drawings, …)."""

from pathlib import Path

from farther.params import section
from farther.registry import build
from farther.stage import run_stage
from farther_demo import DemoWorld, generate

ARTIFACTS = Path("artifacts")


def main(name: str) -> None:
    """Reads `demo`; writes artifacts/demo/NAME."""
    generate(name, ARTIFACTS / "demo" / name, build(DemoWorld, "demo", section("demo")))


if __name__ == "__main__":
    run_stage(main, "artifacts/demo/{}")
