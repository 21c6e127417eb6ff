"""A bundle's graph in onnxruntime beside the monitor."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnxruntime
from PIL import Image

from farther.detectors.base import ImageInput
from farther.errors import DataError
from farther.images.read import load
from farther.monitor.bundle import Bundle
from farther.monitor.monitor import Monitor, Monitored
from farther.monitor.onnx.export import inputs_of
from farther.monitor.onnx.proposal_graphs import OF_PROPOSALS
from farther.tables import Regions

#: Outputs that are compared as numbers.
NOT_NUMBERS = ("label", "unknown")

#: Pixels that the sides of a box differ by at most from those of the same proposal.
SAME_BOX = 0.01


@dataclass
class Difference:
    """Differences between a graph and the monitor.

    Args:
        images, detections: Numbers of those that were compared.
        unmatched: Images whose detections differ in number or class; nothing else of them is
            compared.
        unknown: Detections that one of them alone takes for unknown.
        largest: Largest absolute difference of each output, and as `relative` of the score by
            max(1, |score|).
        proposals: Number of the monitor's, of those that the graph gives.
        other_proposals: Those that one of them alone has. Of two that overlap the better one stays,
            and of two whose objectness is the same but for rounding, either.
    """

    images: int = 0
    detections: int = 0
    unmatched: int = 0
    unknown: int = 0
    largest: dict[str, float] = field(default_factory=dict)
    proposals: int = 0
    other_proposals: int = 0

    def note(self, name: str, value: float) -> None:
        """Notes a difference of an output, which counts if it is the largest so far."""
        self.largest[name] = max(self.largest[name], value)


def compare(bundle: Bundle | str | Path, images: Iterable[ImageInput]) -> Difference:
    """Runs the graph and the monitor on images, on the CPU.

    Args:
        bundle: With a graph; or its folder.
        images: Arrays of shape (H, W, 3), uint8, images of Pillow, or paths of files.

    Raises:
        DataError: the bundle has no graph, or an image cannot be read.
    """
    if isinstance(bundle, str | Path):
        bundle = Bundle.load(bundle)
    if bundle.info.onnx is None:
        raise DataError(
            "the bundle has no graph: write it with --onnx", file=bundle.folder, field="onnx"
        )
    detector = bundle.detector("cpu")
    monitor = Monitor(bundle, "cpu")
    session = onnxruntime.InferenceSession(
        bundle.folder / bundle.info.onnx.file, providers=["CPUExecutionProvider"]
    )
    names = [output.name for output in session.get_outputs()]
    compared = [name for name in names if name not in NOT_NUMBERS]
    difference = Difference(largest=dict.fromkeys([*compared, "relative"], 0.0))
    if isinstance(images, str | Path):
        images = [images]
    for given in images:
        image = _pixels(given, bundle)
        inputs = {name: value.numpy() for name, value in inputs_of(detector, image).items()}
        outputs = dict(zip(names, session.run(None, inputs), strict=True))
        expected = monitor(image)
        assert isinstance(expected, Monitored)
        difference.images += 1
        if OF_PROPOSALS[0] in names and expected.proposals is not None:
            boxes, objectness = (outputs.pop(name) for name in OF_PROPOSALS)
            _compare_proposals(expected.proposals, boxes, objectness, difference)
        _compare_detections(expected, outputs, difference)
    return difference


def _pixels(image: ImageInput, bundle: Bundle) -> np.ndarray:
    """An image as an array of shape (H, W, 3), uint8."""
    if isinstance(image, str | Path):
        return load(image, bundle.info.reading.max_pixels)
    if isinstance(image, Image.Image):
        return np.asarray(image.convert("RGB"))
    return image


def _compare_proposals(
    expected: Regions, boxes: np.ndarray, objectness: np.ndarray, difference: Difference
) -> None:
    """Adds what an image's proposals of the graph and the monitor differ in.

    Args:
        expected: Those of the monitor.
        boxes, objectness: Those of the graph, ndarrays of shape (P, 4) and (P,).
        difference: Is changed.
    """
    distances = np.abs(expected.box[:, None] - boxes[None]).max(axis=2)
    own_rows, graph_rows = np.nonzero(distances <= SAME_BOX)
    score_differences = np.abs(expected.score[own_rows] - objectness[graph_rows])
    only_in_monitor = len(expected) - len(np.unique(own_rows))
    only_in_graph = len(boxes) - len(np.unique(graph_rows))

    difference.proposals += len(expected)
    difference.other_proposals += only_in_monitor + only_in_graph
    values = (distances[own_rows, graph_rows], score_differences)
    for name, value in zip(OF_PROPOSALS, values, strict=True):
        difference.note(name, float(value.max(initial=0)))


def _compare_detections(
    expected: Monitored, outputs: dict[str, np.ndarray], difference: Difference
) -> None:
    """Adds what an image's detections of the graph and the monitor differ in."""
    label = outputs["label"]
    if len(expected) != len(label) or (expected.label != label).any():
        difference.unmatched += 1
        return
    if not len(expected):
        return
    difference.detections += len(expected)
    difference.unknown += int((expected.unknown != outputs["unknown"]).sum())
    for name, output in outputs.items():
        if name in NOT_NUMBERS:
            continue
        if name == "score":
            column = expected.score
        elif name == "confidence":
            column = expected.regions.score
        else:
            column = np.asarray(expected.regions.array(name))
        values = np.abs(np.asarray(column, np.float64) - output)
        difference.note(name, float(values.max()))
        if name == "score":
            relative = values / np.maximum(1, np.abs(expected.score))
            difference.note("relative", float(relative.max()))
