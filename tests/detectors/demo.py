"""The demo's detectors, and images of discs, for tests with a trained network."""

import json
from functools import lru_cache
from pathlib import Path

import numpy as np

from farther import detectors
from farther.detectors.passes import read_passes

DEMO = Path(__file__).parents[2] / "data/demo"
WEIGHTS = {"faster_rcnn": "voc-faster_rcnn", "yolo": "voc-yolov8", "detr": "voc-rtdetr"}
#: Score thresholds that leave a few detections of `scene`.
LOW = {"faster_rcnn": 0.002, "yolo": 0.0002, "detr": 0.02}
IDS = ["a", "b", "c"]


def create(adapter, **params):
    """An adapter on its checkpoint, loaded once for the same parameters.

    Tests that change its network take `fresh`.
    """
    return _loaded(adapter, json.dumps(params, sort_keys=True))


def fresh(adapter, **params):
    """An adapter on its checkpoint that no other test has."""
    weights = DEMO / f"{WEIGHTS[adapter]}.safetensors"
    params = {"device": "cpu", "score_threshold": LOW[adapter], **params}
    return detectors.create(adapter, weights=weights, **params)


@lru_cache(maxsize=8)
def _loaded(adapter, params):
    """`fresh` with parameters as JSON."""
    return fresh(adapter, **json.loads(params))


def scene(number=0):
    """Discs on grey, 120 × 160 pixels; higher up and larger for a higher number."""
    pixels = np.full((120, 160, 3), 200, np.uint8)
    y, x = np.mgrid[:120, :160]
    for column, radius, colour in (
        (55, 22, (200, 40, 40)),
        (108, 17, (250, 220, 40)),
        (55, 9, (20, 20, 20)),
    ):
        pixels[(y - 60 + 5 * number) ** 2 + (x - column) ** 2 < (radius + 2 * number) ** 2] = colour
    return pixels


def passed(kind, detector, images, **params):
    """Regions of a pass over images, which have the first names of `IDS`."""
    extra_pass = read_passes("run", {kind: params})[kind]
    extra_pass.check(detector)
    prepared = [extra_pass.prepare(detector, image) for image in images]
    return extra_pass.forward(detector, prepared, IDS[: len(images)])


def detected(detector, images):
    """Regions of one batch of images, which have the first names of `IDS`."""
    prepared = [detector.prepare(image) for image in images]
    return detector.forward(prepared, IDS[: len(images)])
