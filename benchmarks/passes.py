"""Time of passes over a detector's rows, as a multiple of the time of detecting.

    python benchmarks/passes.py --images artifacts/demo/voc/VOC2007/JPEGImages

Each row is one of the demo's detectors with one pass: milliseconds per image of the plain forward pass and of the pass,
which detects too, and their ratio; of the fastest batch, on one thread.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import torch

from farther import detectors
from farther.detectors.passes import read_passes
from farther.images import read

DETECTORS = {"faster_rcnn": "voc-faster_rcnn", "yolo": "voc-yolov8", "detr": "voc-rtdetr"}
PASSES = {"dropout": {"passes": 10, "rate": 0.3}, "augment": {}}


def milliseconds(run: Callable[[list, list[str]], object], batches: list[list], ids: list[str]) -> float:
    """Of the fastest batch, per image; the first one goes twice."""
    times = []
    for batch in [batches[0], *batches]:
        start = time.perf_counter()
        run(batch, ids)
        times.append((time.perf_counter() - start) * 1000 / len(batch))
    return min(times)


def main() -> None:
    """Prints one line per detector and pass."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=Path, required=True, help="folder of images, searched recursively")
    parser.add_argument("--weights", type=Path, default=Path("data/demo"), help="folder of the demo's checkpoints")
    parser.add_argument("--batches", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=8)
    given = parser.parse_args()
    torch.set_num_threads(1)
    files = sorted(given.images.rglob("*.jpg"))[: given.batches * given.batch_size]
    pixels = [read.as_pixels(file, str(file)) for file in files]
    ids = [str(number) for number in range(given.batch_size)]
    starts = range(0, len(pixels) - given.batch_size + 1, given.batch_size)
    for adapter, name in DETECTORS.items():
        detector = detectors.create(adapter, weights=given.weights / f"{name}.safetensors", device="cpu")
        groups = [pixels[start : start + given.batch_size] for start in starts]
        plain = milliseconds(detector.forward, [[detector.prepare(one) for one in group] for group in groups], ids)
        for label, found in read_passes("run", PASSES).items():
            prepared = [[found.prepare(detector, one) for one in group] for group in groups]
            slow = milliseconds(lambda batch, ids, found=found: found.forward(detector, batch, ids), prepared, ids)  # noqa: B023
            print(f"{adapter:12} {label:8} {plain:7.1f} ms {slow:7.1f} ms  × {slow / plain:.2f}")


if __name__ == "__main__":
    main()
