"""A bundle of a small detector with what it was made of, images and a video that it predicts for."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
from tests.disturbed.valid import networks

#: Frames of the video, which are three shards, and their width and height.
FRAMES = 12
SIZE = (64, 48)


def deployed_project() -> None:
    """A small run, its bundle, photographs and a video."""
    import cv2  # other targets do without it

    networks.faster_rcnn()
    _run().monitor("knn")
    shutil.move("bundles/knn", "bundle")

    width, height = SIZE
    writer = cv2.VideoWriter("clip.avi", cv2.VideoWriter_fourcc(*"MJPG"), 25, SIZE)
    for number in range(FRAMES):
        rng = np.random.default_rng(number)
        writer.write(rng.integers(0, 255, (height, width, 3), np.uint8))
    writer.release()


def _run() -> Any:
    """The run in the current folder, which is made if it does not exist."""
    from tests.monitor.conftest import Deployed, make  # it imports PyTorch

    folder = Path()
    entry = {
        "adapter": "faster_rcnn",
        "weights": "a.safetensors",
        "params": {"score_threshold": 0.01},
        "benchmark": "x",
    }
    methods = {"knn": {"k": 2}}
    if Path("artifacts").is_dir():
        return Deployed(folder, entry, methods, operating=0.01)
    return make(folder, entry, methods, operating=0.01)


def bundle() -> None:
    """Writes a bundle with a graph of ONNX."""
    from farther.monitor import write_bundle  # it imports PyTorch

    write_bundle(_run().source("knn"), "out", onnx=True)


def predict(source: str) -> None:
    """Predicts with small shards: the command has shards of 512 images."""
    # They import PyTorch.
    from farther.monitor import Bundle, Monitor
    from farther.monitor.predict import PredictSettings, predict
    from farther.monitor.sources import open_source

    settings = PredictSettings(out=Path("out"), shard_images=4, overwrite=True)
    settings.check()
    monitor = Monitor(Bundle.load("bundle"), "cpu")
    predict(monitor, open_source(source), settings, log=_discard)


def _discard(_line: str) -> None:
    """A log that nobody reads."""
