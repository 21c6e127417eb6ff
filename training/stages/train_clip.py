"""Trains the demo's small CLIP: `python training/stages/train_clip.py clip`.

A killed run resumes where it was.
"""

from pathlib import Path

from farther.naming.registry import build
from farther.params import section
from farther.stage import run_stage
from farther_training.clip import ClipJob, run_job

ARTIFACTS = Path("artifacts")


def main(name: str) -> None:
    """Reads `train_clip.NAME` of training/params.yaml.

    Writes its folder and artifacts/train/NAME/log.csv.
    """
    job = build(
        ClipJob, f"training job {name!r}", section("train_clip", name, file="training/params.yaml")
    )
    card = run_job(name, job, ARTIFACTS)
    metrics = card["metrics"]
    print(
        f"{name}: {metrics['val']:.1%} of single objects named, {metrics['held_out']:.1%} held out"
    )


if __name__ == "__main__":
    run_stage(main, "artifacts/train/{}")
