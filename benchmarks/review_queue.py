"""Rank of images with unlabelled objects in the review page's queue, on the demo.

    dvc repro && python benchmarks/review_queue.py

For each benchmark and each run with regions: of the images that the rules keep and that show an
unlabelled object of an ID class, how many are in the first 20% of the queue, by the detector alone
and with CLIP.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import numpy as np
import yaml

from farther.curation import benchmark
from farther.errors import ParameterError
from farther.review import Catalogue, label_checker_for

FIRST = 0.2

#: Datasets of which it is known what nobody labelled.
SOURCES = ("coco", "openimages")


def unlabelled(datasets: list[str], artifacts: Path) -> dict[tuple[str, str], set[str]]:
    """Dataset and image → ID classes that the image shows without a label, in the demo."""
    found: dict[tuple[str, str], set[str]] = {}
    for dataset in datasets:
        with (artifacts / "demo" / dataset / "planted.csv").open(
            newline="", encoding="utf-8"
        ) as file:
            for row in csv.DictReader(file):
                if row["labelled"] == "0":
                    found.setdefault((dataset, row["image_id"]), set()).add(row["category"])
    return found


def in_front(queue: np.ndarray, wanted: np.ndarray) -> int:
    """How many of the wanted images are in the first part of the queue."""
    order = np.argsort(-queue, kind="stable")
    return int(wanted[order[: round(FIRST * len(order))]].sum())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--project", type=Path, default=Path(), help="folder of a finished demo")
    project = parser.parse_args().project
    params = yaml.safe_load((project / "params.yaml").read_text(encoding="utf-8"))
    artifacts = project / "artifacts"
    planted = unlabelled(list(SOURCES), artifacts)
    print(
        "| benchmark | run | images | detector alone | with CLIP |\n| --- | --- | --- | --- | --- |"
    )
    for name, section in params["benchmarks"].items():
        made = benchmark(name, section)
        for run in params["detectors"]:
            try:
                checker = label_checker_for(name, params, project, run)
                catalogue = Catalogue.read(name, made, params["datasets"], project, checker)
            except ParameterError:  # it has no regions, or knows none of the classes
                continue
            fates, classes = catalogue.fates, set(catalogue.id_classes)
            images = zip(fates.dataset, fates.image_id, strict=True)
            wanted = np.array([bool(planted.get(image, set()) & classes) for image in images])
            kept = (fates.fate != "removed") & np.isin(fates.dataset.astype(str), SOURCES)
            if not wanted[kept].any():  # nothing is planted there
                continue
            front = [
                in_front(queue[kept], wanted[kept])
                for queue in (catalogue.suspicion, catalogue.queue)
            ]
            shares = " | ".join(f"{count} ({count / wanted[kept].sum():.0%})" for count in front)
            print(f"| {name} | {run} | {wanted[kept].sum()} of {kept.sum()} | {shares} |")


if __name__ == "__main__":
    main()
