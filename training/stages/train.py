"""Trains one detector: `python training/stages/train.py voc-yolov8`.

A killed run resumes at its last checkpoint.
"""

import shutil
from pathlib import Path

from farther.datasets import image_roots
from farther.params import section
from farther.stage import run_stage
from farther.tables.writing import write_aside
from farther_training.job import make_job, run_job

ARTIFACTS = Path("artifacts")
TRAINING = Path("training")


def main(name: str) -> None:
    """Reads `train.NAME` and the root of its dataset.

    Writes artifacts/train/NAME and its log to training/logs.
    """
    job = make_job(name, section("train", name, file=TRAINING / "params.yaml"))
    root = job.root or image_roots(section("datasets"), ARTIFACTS / "tables")[job.dataset]
    card = run_job(name, job, root, ARTIFACTS)
    log = TRAINING / "logs" / f"{name}.csv"
    with write_aside(log) as aside:
        shutil.copyfile(ARTIFACTS / "train" / name / "log.csv", aside)
    metric = next(iter(card["metrics"][job.test]))
    values = [f"{metrics[metric]:.3f} on {subset}" for subset, metrics in card["metrics"].items()]
    print(f"{name}: {metric} {', '.join(values)}")


if __name__ == "__main__":
    run_stage(main, "artifacts/train/{}")
