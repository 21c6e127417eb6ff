"""Passes: a run's detections looked at again, with other weights or another image."""

from farther.detectors.passes.base import PASSES, Pass, read_passes, register_pass
from farther.detectors.passes.streaming import able, infer_passes

__all__ = ["PASSES", "Pass", "able", "infer_passes", "read_passes", "register_pass"]
