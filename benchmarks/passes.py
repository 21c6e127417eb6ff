r"""Time of passes over a detector's rows, as a multiple of the time of detecting.

    python benchmarks/passes.py --images artifacts/demo/voc/VOC2007/JPEGImages
    python benchmarks/passes.py --images artifacts/demo/voc/VOC2007/JPEGImages \
        --crops 32 --clip data/demo/clip

Each row is one of the demo's detectors with one pass: milliseconds per image of the plain forward
pass and of the pass, which detects too, and their ratio; of the fastest batch, on one thread. With
`--crops`, rows are crops per second of a pass of kind `crops` with that many boxes per image, and
of a loop over boxes with open_clip's own preprocessing, in batches of one image: cutting and
preprocessing alone, and with the network, on the device that `--device` names.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch

from farther import detectors
from farther.detectors.passes import read_passes
from farther.images import read
from farther.tables import Header

DETECTORS = {"faster_rcnn": "voc-faster_rcnn", "yolo": "voc-yolov8", "detr": "voc-rtdetr"}
PASSES = {"dropout": {"passes": 10, "rate": 0.3}, "augment": {}}


def milliseconds(
    run: Callable[[list, list[str]], object], batches: list[list], ids: list[str]
) -> float:
    """Of the fastest batch, per image; the first one goes twice."""
    times = []
    for batch in [batches[0], *batches]:
        start = time.perf_counter()
        run(batch, ids)
        times.append((time.perf_counter() - start) * 1000 / len(batch))
    return min(times)


def crops_per_second(images: list, given: argparse.Namespace) -> None:
    """Prints the rates of the pass and of the loop."""
    from PIL import Image

    encoder = {"model": f"local-dir:{given.clip}", "device": given.device}
    crops = read_passes("run", {"crops": {"encoder": encoder}})["crops"]
    rng = np.random.default_rng(0)
    boxes = []
    for image in images:
        corner = rng.uniform(0, 0.7, (given.crops, 2))
        ends = corner + rng.uniform(0.05, 0.3, (given.crops, 2))
        boxes.append(
            (np.concatenate([corner, ends], axis=1) * np.tile(image.shape[1::-1], 2)).astype(
                np.float32
            )
        )
    pairs, score = list(zip(images, boxes, strict=True)), np.ones(given.crops)
    transform, clip = crops.clip.preprocessing.prepare, crops.clip

    def loop(image: np.ndarray, box: np.ndarray) -> torch.Tensor:
        whole = Image.fromarray(image)
        return torch.stack(
            [
                transform(np.asarray(whole.crop(place)))
                for place in crops.bounds(box, *whole.size).tolist()
            ]
        )

    header = Header(("cat",), weight=np.ones((1, 1)), bias=np.zeros(1))

    def in_groups(cuts: list) -> None:
        for start in range(0, len(cuts), given.batch_size):
            crops.embeddings(cuts[start : start + given.batch_size], header)

    ways = {
        "preparing, pass": lambda: [crops.cut(image, box, score) for image, box in pairs],
        "preparing, open_clip's loop": lambda: [loop(image, box) for image, box in pairs],
        "all, pass": lambda: in_groups([crops.cut(image, box, score) for image, box in pairs]),
        "all, open_clip's loop": lambda: [clip.images(loop(image, box)) for image, box in pairs],
    }
    for name, way in ways.items():
        way()
        start = time.perf_counter()
        way()
        seconds = time.perf_counter() - start
        print(f"{name:28} {len(pairs) * given.crops / seconds:9.0f} crops per second")


def main() -> None:
    """Prints one line per detector and pass."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--images", type=Path, required=True, help="folder of images, searched recursively"
    )
    parser.add_argument(
        "--weights", type=Path, default=Path("data/demo"), help="folder of the demo's checkpoints"
    )
    parser.add_argument("--batches", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--crops", type=int, help="boxes per image of a pass of kind crops")
    parser.add_argument(
        "--clip", type=Path, default=Path("data/demo/clip"), help="folder of the CLIP"
    )
    parser.add_argument("--device", default="cpu", help="of the CLIP")
    given = parser.parse_args()
    torch.set_num_threads(1)
    files = sorted(given.images.rglob("*.jpg"))[: given.batches * given.batch_size]
    pixels = [read.as_pixels(file, str(file)) for file in files]
    if given.crops:
        crops_per_second(pixels, given)
        return
    ids = [str(number) for number in range(given.batch_size)]
    starts = range(0, len(pixels) - given.batch_size + 1, given.batch_size)
    for adapter, name in DETECTORS.items():
        detector = detectors.create(
            adapter, weights=given.weights / f"{name}.safetensors", device="cpu"
        )
        groups = [pixels[start : start + given.batch_size] for start in starts]
        plain = milliseconds(
            detector.forward, [[detector.prepare(one) for one in group] for group in groups], ids
        )
        for label, found in read_passes("run", PASSES).items():
            prepared = [[found.prepare(detector, one) for one in group] for group in groups]
            slow = milliseconds(partial(found.forward, detector), prepared, ids)
            print(f"{adapter:12} {label:8} {plain:7.1f} ms {slow:7.1f} ms  × {slow / plain:.2f}")


if __name__ == "__main__":
    main()
