"""Trains one detector: `python stages/train.py voc-yolov8`. A killed run goes on where it stopped."""

import sys
from pathlib import Path

from _params import section
from farther.datasets import image_roots
from farther.tools.training.job import make_job, run_job

ARTIFACTS = Path("artifacts")


def main(name: str) -> None:
    """Reads `train.NAME` and the root of its dataset; writes the checkpoint and artifacts/train/NAME/log.csv."""
    job = make_job(name, section("train", name, file="training/params.yaml"))
    root = image_roots(section("datasets"), ARTIFACTS / "tables")[job.dataset]
    card = run_job(name, job, root, ARTIFACTS)
    figures = ", ".join(f"{found['map50']:.3f} on {subset}" for subset, found in card["figures"].items())
    print(f"{name}: mAP50 {figures}")


if __name__ == "__main__":
    main(*sys.argv[1:])
