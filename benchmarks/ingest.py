"""Time and memory of ingesting OpenImages' boxes: a random CSV of its size.

    python benchmarks/ingest.py                      14,000,000 boxes in 1,740,000 images
    python benchmarks/ingest.py --boxes 10000000     fewer

Each step runs in a process of its own: `read` parses the CSV; `present` parses it for every 20th
image; `tables` is all of `ingest`, with a small file on disk for each image. pyarrow's own reader
of the same columns is measured, too: nothing that checks a row can be faster. Run it on an idle
machine: the load is printed with the results. The disk needs 1.5 GiB and one entry per image.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
from PIL import Image

from farther import datasets
from farther.datasets import ingest

BOXES_PER_IMAGE = 8.05
CLASSES = 600
CHUNK = 1_000_000

#: A file takes no more hard links than this on common file systems.
LINKS = 60_000


def make(root: Path, boxes: int) -> int:
    """Writes CSV, class names and hierarchy; returns the number of images."""
    rng = np.random.default_rng(0)
    images = int(boxes / BOXES_PER_IMAGE)
    owner = np.sort(rng.integers(images, size=boxes))
    labels = np.array([f"/m/{k:06d}" for k in range(CLASSES)])
    with (root / "train-annotations-bbox.csv").open("wb") as file:
        for start in range(0, boxes, CHUNK):
            part = owner[start : start + CHUNK]
            edges = np.sort(rng.integers(0, 1_000_000, size=(len(part), 2, 2)), axis=2) / 1e6
            flags = rng.integers(0, 2, size=(len(part), 5)).astype(np.int8)
            columns = {
                "ImageID": pa.array([f"{number:016x}" for number in part.tolist()]),
                "Source": pa.array(["xclick"] * len(part)),
                "LabelName": pa.array(labels[rng.integers(CLASSES, size=len(part))]),
                "Confidence": np.ones(len(part), np.int8),
                "XMin": edges[:, 0, 0],
                "XMax": edges[:, 0, 1],
                "YMin": edges[:, 1, 0],
                "YMax": edges[:, 1, 1],
                "IsOccluded": flags[:, 0],
                "IsTruncated": flags[:, 1],
                "IsGroupOf": flags[:, 2],
                "IsDepiction": flags[:, 3],
                "IsInside": flags[:, 4],
            }
            options = arrow_csv.WriteOptions(include_header=start == 0, quoting_style="none")
            arrow_csv.write_csv(pa.table(columns), file, options)
    (root / "class-descriptions-boxable.csv").write_text(
        "".join(f"{label},Class {label[3:]}\n" for label in labels)
    )
    tree = {"LabelName": "/m/root", "Subcategory": [{"LabelName": label} for label in labels]}
    (root / "bbox_labels_600_hierarchy.json").write_text(json.dumps(tree))
    return images


def link_images(root: Path, images: int) -> None:
    """One small file an image, most of them hard links."""
    folder = root / "train"
    folder.mkdir()
    source = folder
    for number in range(images):
        path = folder / f"{number:016x}.jpg"
        if number % LINKS == 0:
            source = path
            Image.new("RGB", (64, 48), (number % 255, 90, 60)).save(path)
        else:
            path.hardlink_to(source)


def step(name: str, root: Path) -> dict[str, float]:
    """Runs one step in this process."""
    start = time.perf_counter()
    if name == "pyarrow":
        found = read_with_pyarrow(root)
    elif name == "tables":
        reader = datasets.create("openimages", root=root, max_warnings=1)
        found = ingest.ingest(reader, "openimages", root / "tables")["train"]["objects"]
    else:
        select = "present" if name == "present" else "annotated"
        found = len(datasets.create("openimages", root=root, select=select).read("train").objects)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "boxes": found,
        "seconds": time.perf_counter() - start,
        "cpu": usage.ru_utime + usage.ru_stime,
        "peak_gib": peak(),
    }


def peak() -> float:
    """Peak memory of this process, in GiB.

    `ru_maxrss` would include the memory of its parent at the fork.
    """
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 2**20


def read_with_pyarrow(root: Path) -> int:
    columns = ["ImageID", "LabelName", "XMin", "XMax", "YMin", "YMax", "IsGroupOf"]
    return arrow_csv.read_csv(
        root / "train-annotations-bbox.csv",
        read_options=arrow_csv.ReadOptions(use_threads=False),
        convert_options=arrow_csv.ConvertOptions(include_columns=columns),
    ).num_rows


def run(name: str, root: Path) -> None:
    """Runs one step in a process of its own and prints what it took."""
    command = [sys.executable, __file__, "--step", name, "--root", str(root)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    took = json.loads(done.stdout)
    print(
        f"{name:10s} {took['boxes']:>12,} boxes  {took['seconds']:7.1f} s  "
        f"{took['cpu']:7.1f} s of CPU  "
        f"{took['peak_gib']:5.2f} GiB peak",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--boxes", type=int, default=14_000_000)
    parser.add_argument("--step", help=argparse.SUPPRESS)
    parser.add_argument("--root", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.step:
        print(json.dumps(step(arguments.step, arguments.root)))
        return
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        images = make(root, arguments.boxes)
        size = (root / "train-annotations-bbox.csv").stat().st_size
        print(f"{arguments.boxes:,} boxes in {images:,} images, {size / 2**30:.2f} GiB of CSV")
        print("load", os.getloadavg(), "of", os.cpu_count(), "cores")
        run("pyarrow", root)
        (root / "train").mkdir()
        run("read", root)
        for number in range(0, images, 20):
            (root / "train" / f"{number:016x}.jpg").touch()
        run("present", root)
        for path in (root / "train").iterdir():
            path.unlink()
        (root / "train").rmdir()
        link_images(root, images)
        run("tables", root)


if __name__ == "__main__":
    main()
