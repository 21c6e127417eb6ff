"""Passes: extra inference on a run's detections, with other weights or of another image."""

from farther.detectors.passes.base import PASSES, Pass, read_passes, register_pass
from farther.detectors.passes.streaming import SharedPasses, check_detector, infer_passes

__all__ = [
    "PASSES",
    "Pass",
    "SharedPasses",
    "check_detector",
    "infer_passes",
    "read_passes",
    "register_pass",
]
