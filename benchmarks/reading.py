"""Time and memory of reading: imported detections, the headers of images, and `farther init`.

    python benchmarks/reading.py DIR
        5 million detections in 500,000 images; 100,000 images of 64 pixels; 1.5 GB of disk
    python benchmarks/reading.py DIR --detections 50000 --images 2000

Detections are COCO results without logits, 10 per image. Images are in a COCO dataset with three
subsets. Each step is a process of its own; processor seconds are those of its children, too.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from farther import datasets, detectors
from farther.datasets.ingest import ingest
from farther.detectors.imported import Imported, import_splits
from farther.tables import Images

CLASSES = 80
PER_IMAGE = 10
#: Side of an image, and the number of different pictures.
SIDE, PICTURES = 64, 50
#: Share of the images in each subset.
SUBSETS = {"train": 0.5, "val": 0.2, "test": 0.3}
STEPS = ("import", "ingest", "init")


def detections_of(image_ids: range, side: float, rng: np.random.Generator) -> Iterator[dict]:
    """Detections as COCO results, `PER_IMAGE` for each image."""
    for image_id in image_ids:
        corner = rng.uniform(0, side / 2, (PER_IMAGE, 2)).round(3)
        size = rng.uniform(side / 8, side / 2, (PER_IMAGE, 2)).round(3)
        box = np.concatenate([corner, size], axis=1).tolist()
        score = rng.uniform(0.05, 1, PER_IMAGE).round(5).tolist()
        category = rng.integers(1, CLASSES + 1, PER_IMAGE).tolist()
        for row in range(PER_IMAGE):
            yield {
                "image_id": image_id,
                "category_id": category[row],
                "bbox": box[row],
                "score": score[row],
            }


def write_results(file: Path, image_ids: range, side: float) -> None:
    """Writes detections as one JSON list."""
    rng = np.random.default_rng(0)
    with file.open("w") as text:
        separator = "["
        for detection in detections_of(image_ids, side, rng):
            text.write(separator + json.dumps(detection))
            separator = ", "
        text.write("]")


def write_splits(folder: Path, images: int) -> None:
    """Writes the images tables of two splits, whose files do not exist."""
    for split, numbers in {"a": range(images // 2), "b": range(images // 2, images)}.items():
        names = [f"{number:012d}" for number in numbers]
        count = len(names)
        Images(
            image_id=names,
            dataset=["drawn"] * count,
            file=[f"images/{name}.jpg" for name in names],
            width=np.full(count, 640),
            height=np.full(count, 640),
            digest=names,
        ).write(folder / split / "images.parquet")


def write_dataset(root: Path, images: int) -> None:
    """Writes a COCO dataset of small images, all with different bytes."""
    rng = np.random.default_rng(0)
    pictures = []
    for _ in range(PICTURES):
        file = io.BytesIO()
        pixels = rng.integers(0, 255, (SIDE, SIDE, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(file, "JPEG", quality=60)
        pictures.append(file.getvalue())

    categories = [{"id": k, "name": f"class {k}"} for k in range(1, CLASSES + 1)]
    (root / "annotations").mkdir(parents=True)
    start = 0
    for subset, share in SUBSETS.items():
        numbers = range(start, start + int(share * images))
        start = numbers.stop
        (root / subset).mkdir()
        rows = []
        for number in numbers:
            name = f"{number:012d}.jpg"
            (root / subset / name).write_bytes(pictures[number % PICTURES] + str(number).encode())
            rows.append({"id": number, "file_name": name, "width": SIDE, "height": SIDE})
        objects = []
        for number, detection in enumerate(detections_of(numbers, SIDE, rng)):
            if number % 5 == 0:
                detection.pop("score")
                objects.append({**detection, "id": number, "area": 1, "iscrowd": 0})
        content = {"images": rows, "annotations": objects, "categories": categories}
        (root / "annotations" / f"{subset}.json").write_text(json.dumps(content))


def run_step(step: str, folder: Path) -> None:
    """Runs a step in this process."""
    if step == "import":
        detector = detectors.create(
            "coco_results",
            weights=folder / "results.json",
            categories={number: f"class {number}" for number in range(1, CLASSES + 1)},
            score_threshold=0.05,
        )
        assert isinstance(detector, Imported)
        import_splits(detector, folder / "splits", folder / "regions", folder / "work", 10_000)
        return
    layout = {subset: [f"annotations/{subset}.json", subset] for subset in SUBSETS}
    if step == "ingest":
        reader = datasets.create(format="coco", root=folder / "dataset", layout=layout)
        ingest(reader, "drawn", folder / "tables")
        return
    command = ["init", folder / "project", "--id", folder / "dataset", "--ood", folder / "ood"]
    command += ["--detector", folder / "small.json", "--dry-run"]
    subprocess.run([sys.executable, "-m", "farther", *map(str, command)], check=True)


def measure(step: str, folder: Path) -> dict[str, Any]:
    """Seconds, processor seconds and the largest process (MiB) of a step."""
    start = time.monotonic()
    process = subprocess.Popen([sys.executable, __file__, str(folder), "--step", step])
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{step} failed")
    return {
        "seconds": time.monotonic() - start,
        "processor": usage.ru_utime + usage.ru_stime,
        "MiB": usage.ru_maxrss / 1024,
    }


def main() -> None:
    """Writes the data where it is absent, and measures the steps."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--detections", type=int, default=5_000_000)
    parser.add_argument("--images", type=int, default=100_000)
    parser.add_argument("--step", choices=STEPS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    folder = arguments.folder
    if arguments.step:
        run_step(arguments.step, folder)
        return

    if not (folder / "ood").exists():
        folder.mkdir(parents=True, exist_ok=True)
        images = arguments.detections // PER_IMAGE
        write_results(folder / "results.json", range(images), 640)
        write_splits(folder / "splits", images)
        write_dataset(folder / "dataset", arguments.images)
        write_results(folder / "small.json", range(arguments.images // PER_IMAGE), SIDE)
        write_dataset(folder / "ood", 100)
    print("| step | seconds | processor seconds | MiB |\n| --- | ---: | ---: | ---: |")
    for step in STEPS:
        measured = measure(step, folder)
        values = " | ".join(f"{value:,.0f}" for value in measured.values())
        print(f"| `{step}` | {values} |", flush=True)


if __name__ == "__main__":
    main()
