"""Stage train: tables become a detector's checkpoint."""

import sys
from pathlib import Path

from _params import section
from farther.registry import build
from farther.training.job import Job, run_job


def main(name: str) -> None:
    """Trains the job `name`, as `train.<name>` of `params.yaml` describes it."""
    job = build(Job, f"training job {name!r}", section("train", name))
    root = Path(section("datasets", job.dataset)["root"])
    card = run_job(name, job, root, Path("artifacts"))
    print(f"{name}: mAP50 {card['figures']['val']['map50']:.3f} on val, {card['figures']['test']['map50']:.3f} on test")


if __name__ == "__main__":
    main(*sys.argv[1:])
