"""Description of an image's preparation for a graph, so that other programs can do the same."""

from __future__ import annotations

from typing import Any

from farther.detectors.base import Detector
from farther.detectors.classifier import Classifier
from farther.detectors.dense import DenseDetector
from farther.detectors.faster_rcnn import FasterRCNN
from farther.detectors.yolo import Yolo
from farther.monitor.bundle_info import GraphPreprocessing

ORIGINAL = "The input `original` is height and width of the image as given, in pixels."


def described(detector: Detector) -> GraphPreprocessing:
    """Steps in words, and their numbers by name."""
    if isinstance(detector, Yolo):
        return _of_yolo(detector)
    if isinstance(detector, (FasterRCNN, DenseDetector)):
        return _of_torchvision(detector)
    if isinstance(detector, Classifier):
        return _of_classifier(detector)
    return _of_processor(detector)


def _of_yolo(detector: Yolo) -> GraphPreprocessing:
    stride = detector.checkpoint.stride
    image_size = detector.image_size or detector.checkpoint.blueprint.image_size
    longer_side = -(-image_size // stride) * stride
    steps = [
        "Red, green, blue; bytes.",
        "Resize by the factor longer_side / max(height, width), to the nearest integers, bilinear "
        "as OpenCV's INTER_LINEAR.",
        "Pad each side to the next multiple of `multiple` with `value`: half of it (rounded, of "
        "halves the smaller part) left and above, the rest right and below.",
        "The input `image` is (height, width, 3), uint8; the graph divides by 255.",
        ORIGINAL,
    ]
    numbers = {"longer_side": longer_side, "multiple": stride, "value": 114}
    return GraphPreprocessing(steps=steps, numbers=numbers)


def _of_torchvision(detector: FasterRCNN | DenseDetector) -> GraphPreprocessing:
    transform = detector.network.transform
    steps = [
        "Red, green, blue; bytes. The input `image` is the image as given, (height, width, 3), "
        "uint8.",
        "Nothing else: the graph divides by 255, subtracts `mean`, divides by `std`, resizes "
        "(bilinear, half pixels) so that the shorter side has `shorter_side` pixels, unless the "
        "longer one would then have more than `longer_side`, and pads right and below with zeros "
        "to multiples of `multiple`.",
    ]
    numbers = {
        "mean": list(transform.image_mean),
        "std": list(transform.image_std),
        "shorter_side": transform.min_size[-1],
        "longer_side": transform.max_size,
        "multiple": transform.size_divisible,
    }
    return GraphPreprocessing(steps=steps, numbers=numbers)


def _of_classifier(detector: Classifier) -> GraphPreprocessing:
    preprocessing = detector.blueprint.preprocessing
    steps = [
        "Red, green, blue; bytes.",
        "Resize with Pillow, by `interpolation`: the shorter side to `resize` pixels, or height "
        "and width to its two.",
        "Cut `crop` × `crop` pixels from the centre; pad a smaller image with zeros.",
        "The input `image` is (crop, crop, 3), uint8; the graph divides by 255, subtracts `mean`, "
        "divides by `std`.",
        ORIGINAL,
    ]
    return GraphPreprocessing(steps=steps, numbers=dict(preprocessing))


def _of_processor(detector: Any) -> GraphPreprocessing:
    steps = [
        "Red, green, blue; bytes.",
        "What the model's own image processor does, with the fields in the numbers: resize, "
        "rescale, normalise.",
        "The input `image` is (3, height, width), float32.",
        ORIGINAL,
    ]
    if not hasattr(detector, "preprocessing"):
        fields = detector.processor.to_dict()
        numbers = {name: value for name, value in fields.items() if value is not None}
        return GraphPreprocessing(steps=steps, numbers=numbers)
    numbers = detector.encoder.identity["preprocessing"]
    if not isinstance(numbers, dict):
        numbers = {"preprocessing": numbers}
    return GraphPreprocessing(steps=steps, numbers=numbers)
