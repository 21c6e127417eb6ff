"""Cost of proposals: batches of a network with and without them, alternating in one process.

    python benchmarks/proposals.py artifacts/demo/voc --images 64

For each of the demo's detectors: milliseconds per image without and with its own source of
proposals, minimum and median over rounds, and speed with them relative to speed without. What they
find is measured by the stage `evaluate`.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from farther import detectors
from farther.detectors.proposal_sources import NetworkSource, read_sources
from farther.images.device import inference_mode
from farther.images.read import load

RUNS = {"faster_rcnn": "voc-faster_rcnn", "yolo": "voc-yolov8", "detr": "voc-rtdetr"}
MAX_PIXELS = 10**9


def main() -> None:
    """Prints one line per detector."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="Folder of JPEG files, searched below.")
    parser.add_argument(
        "--weights", type=Path, default=Path("data/demo"), help="folder of the demo's checkpoints"
    )
    parser.add_argument("--images", type=int, default=64)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    torch.set_num_threads(1)
    files = sorted(given.folder.rglob("*.jpg"))[: given.images]
    pixels = [load(file, MAX_PIXELS) for file in files]
    for adapter, weights in RUNS.items():
        detector: Any = detectors.create(
            adapter, weights=given.weights / f"{weights}.safetensors", device=given.device
        )
        (source,) = read_sources(weights, {detector.PROPOSALS: {}}).values()
        assert isinstance(source, NetworkSource)
        prepared = [detector.prepare(image) for image in pixels]
        names = [str(file) for file in files]
        ways: dict[str, Mapping[str, Any]] = {"without": {}, "with": {"own": source.selection()}}
        took: dict[str, list[float]] = {name: [] for name in ways}
        for number in range(given.rounds + 1):  # the first warms up
            for name, wanted in ways.items():
                started = time.perf_counter()
                for first in range(0, len(files), given.batch):
                    rows = slice(first, first + given.batch)
                    with inference_mode():
                        detector.forward_proposals(prepared[rows], names[rows], wanted)
                if given.device != "cpu":
                    torch.cuda.synchronize()
                if number:
                    took[name].append(1000 * (time.perf_counter() - started) / len(files))
        both = [(min(each), statistics.median(each)) for each in took.values()]
        shown = ", ".join(
            f"{name} {low:.1f} (median {mid:.1f}) ms"
            for name, (low, mid) in zip(took, both, strict=True)
        )
        print(
            f"{adapter}, {detector.PROPOSALS}: {shown}; speed with {both[0][0] / both[1][0]:.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
