"""A bundle's graph in onnxruntime beside the monitor."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import onnxruntime

from farther.errors import DataError
from farther.monitor.bundle import Bundle
from farther.monitor.monitor import Monitor, Monitored
from farther.monitor.onnx.export import inputs_of
from farther.monitor.onnx.proposals import OF_PROPOSALS
from farther.tables import Regions

#: Outputs that are compared as numbers.
NOT_NUMBERS = ("label", "unknown")

#: Pixels that the sides of a box differ by at most from those of the same proposal.
SAME_BOX = 0.01


@dataclass(frozen=True)
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

    images: int
    detections: int
    unmatched: int
    unknown: int
    largest: dict[str, float]
    proposals: int
    other_proposals: int


def compare(bundle: Bundle, images: Iterable[np.ndarray]) -> Difference:
    """Runs the graph and the monitor on images, on the CPU.

    Args:
        bundle: With a graph.
        images: Arrays of shape (H, W, 3), uint8.

    Raises:
        DataError: the bundle has no graph.
    """
    if bundle.info.onnx is None:
        raise DataError(
            "the bundle has no graph: write it with --onnx", file=bundle.folder, field="onnx"
        )
    detector, monitor = bundle.detector("cpu"), Monitor(bundle, "cpu")
    session = onnxruntime.InferenceSession(
        bundle.folder / bundle.info.onnx.file, providers=["CPUExecutionProvider"]
    )
    names = [output.name for output in session.get_outputs()]
    largest = dict.fromkeys([*(name for name in names if name not in NOT_NUMBERS), "relative"], 0.0)
    count = detections = unmatched = unknown = proposals = others = 0
    for image in images:
        given = {name: value.numpy() for name, value in inputs_of(detector, image).items()}
        found = dict(zip(names, session.run(None, given), strict=True))
        expected = monitor(image)
        assert isinstance(expected, Monitored)
        count += 1
        if OF_PROPOSALS[0] in names and expected.proposals is not None:
            alone, differences = _of_proposals(
                expected.proposals, *(found.pop(name) for name in OF_PROPOSALS)
            )
            proposals, others = proposals + len(expected.proposals), others + alone
            largest |= {name: max(largest[name], value) for name, value in differences.items()}
        if len(expected) != len(found["label"]) or (expected.label != found["label"]).any():
            unmatched += 1
        elif len(expected):
            detections += len(expected)
            unknown += int((expected.unknown != found["unknown"]).sum())
            for name, value in _differences(expected, found).items():
                largest[name] = max(largest[name], value)
    return Difference(count, detections, unmatched, unknown, largest, proposals, others)


def _of_proposals(
    expected: Regions, boxes: np.ndarray, objectness: np.ndarray
) -> tuple[int, dict[str, float]]:
    """Number of an image's proposals that the graph or the monitor alone has, and differences of the others."""
    apart = np.abs(expected.box[:, None] - boxes[None]).max(axis=2)
    ours, theirs = np.nonzero(apart <= SAME_BOX)
    scores = np.abs(expected.score[ours] - objectness[theirs])
    others = len(expected) - len(np.unique(ours)) + len(boxes) - len(np.unique(theirs))
    values = (apart[ours, theirs], scores)
    return others, {
        name: float(of.max(initial=0)) for name, of in zip(OF_PROPOSALS, values, strict=True)
    }


def _differences(expected: Monitored, found: dict[str, np.ndarray]) -> dict[str, float]:
    """Of one image; see `Difference.largest`."""
    own = {"score": expected.score, "confidence": expected.regions.score}
    values = {}
    for name in found:
        if name not in NOT_NUMBERS:
            stored = own[name] if name in own else expected.regions.array(name)
            values[name] = np.abs(np.asarray(stored, np.float64) - found[name])
    values["relative"] = values["score"] / np.maximum(1, np.abs(expected.score))
    return {name: float(value.max()) for name, value in values.items()}
