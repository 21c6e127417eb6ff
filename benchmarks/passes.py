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
from typing import Any

import numpy as np
import torch

from farther import detectors
from farther.detectors.passes import read_passes
from farther.images.inputs import as_pixels
from farther.tables import Header

DETECTORS = {"faster_rcnn": "voc-faster_rcnn", "yolo": "voc-yolov8", "detr": "voc-rtdetr"}
PASSES = {"dropout": {"passes": 10, "rate": 0.3}, "augment": {}}


def milliseconds(
    run: Callable[[list, list[str]], object], batches: list[list], ids: list[str]
) -> float:
    """Milliseconds per image of the fastest batch; the first batch runs twice."""
    times = []
    for batch in [batches[0], *batches]:
        start = time.perf_counter()
        run(batch, ids)
        times.append((time.perf_counter() - start) * 1000 / len(batch))
    return min(times)


def random_boxes(image: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Boxes inside an image, shape (count, 4), float32."""
    corner = rng.uniform(0, 0.7, (count, 2))
    opposite_corner = corner + rng.uniform(0.05, 0.3, (count, 2))
    width_height = np.tile(image.shape[1::-1], 2)
    boxes = np.concatenate([corner, opposite_corner], axis=1) * width_height
    return boxes.astype(np.float32)


def crops_per_second(images: list, options: argparse.Namespace) -> None:
    """Prints the rates of the pass and of the loop."""
    from PIL import Image

    encoder = {"model": f"local-dir:{options.clip}", "device": options.device}
    crops: Any = read_passes("run", {"crops": {"encoder": encoder}})["crops"]
    clip = crops.clip
    transform = clip.preprocessing.prepare
    rng = np.random.default_rng(0)
    boxes_by_image = [random_boxes(image, options.crops, rng) for image in images]
    score = np.ones(options.crops)
    header = Header(("cat",), weight=np.ones((1, 1)), bias=np.zeros(1))

    def prepare_in_pass() -> list:
        pairs = zip(images, boxes_by_image, strict=True)
        return [crops.cut(image, boxes, score) for image, boxes in pairs]

    def prepare_in_loop(pixels: np.ndarray, boxes: np.ndarray) -> torch.Tensor:
        image = Image.fromarray(pixels)
        inputs = []
        for bounds in crops.bounds(boxes, *image.size).tolist():
            inputs.append(transform(np.asarray(image.crop(bounds))))
        return torch.stack(inputs)

    def prepare_all_in_loop() -> None:
        for pixels, boxes in zip(images, boxes_by_image, strict=True):
            prepare_in_loop(pixels, boxes)

    def embed_in_pass() -> None:
        cuts = prepare_in_pass()
        for start in range(0, len(cuts), options.batch_size):
            crops.embeddings(cuts[start : start + options.batch_size], header)

    def embed_in_loop() -> None:
        for pixels, boxes in zip(images, boxes_by_image, strict=True):
            clip.images(prepare_in_loop(pixels, boxes))

    ways = {
        "preparing, pass": prepare_in_pass,
        "preparing, open_clip's loop": prepare_all_in_loop,
        "all, pass": embed_in_pass,
        "all, open_clip's loop": embed_in_loop,
    }
    for name, way in ways.items():
        way()
        start = time.perf_counter()
        way()
        seconds = time.perf_counter() - start
        print(f"{name:28} {len(images) * options.crops / seconds:9.0f} crops per second")


def milliseconds_of_passes(images: list, options: argparse.Namespace) -> None:
    """Prints one line per detector and pass."""
    ids = [str(number) for number in range(options.batch_size)]
    starts = range(0, len(images) - options.batch_size + 1, options.batch_size)
    batches = [images[start : start + options.batch_size] for start in starts]
    for adapter, name in DETECTORS.items():
        detector: Any = detectors.create(
            adapter, weights=options.weights / f"{name}.safetensors", device="cpu"
        )
        prepared = [[detector.prepare(image) for image in batch] for batch in batches]
        plain = milliseconds(detector.forward, prepared, ids)
        for pass_name, extra_pass in read_passes("run", PASSES).items():
            prepared = []
            for batch in batches:
                prepared.append([extra_pass.prepare(detector, image) for image in batch])
            slow = milliseconds(partial(extra_pass.forward, detector), prepared, ids)
            ratio = slow / plain
            print(f"{adapter:12} {pass_name:8} {plain:7.1f} ms {slow:7.1f} ms  × {ratio:.2f}")


def main() -> None:
    """Measures the passes, or crops per second where `--crops` is given."""
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
    options = parser.parse_args()
    torch.set_num_threads(1)
    files = sorted(options.images.rglob("*.jpg"))[: options.batches * options.batch_size]
    images = [as_pixels(file, str(file)) for file in files]
    if options.crops:
        crops_per_second(images, options)
    else:
        milliseconds_of_passes(images, options)


if __name__ == "__main__":
    main()
