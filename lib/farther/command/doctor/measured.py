"""A detector, and its passes, measured on a sample of images: time, memory, and what they store."""

from __future__ import annotations

import resource
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from farther.command.doctor.machine import GIB
from farther.command.output import size
from farther.detectors import Detector
from farther.detectors.passes import Pass
from farther.evaluation.cost import timed
from farther.images.inputs import as_pixels
from farther.tables import Regions
from farther.tables.folders import listed


@dataclass(frozen=True)
class Measured:
    """Measurements of a network.

    Args:
        images: Number of images that went through it.
        seconds: Seconds per image.
        memory: Peak of memory, as text.
        regions: The regions of the images.
    """

    images: int
    seconds: float
    memory: str
    regions: Regions

    @property
    def bytes(self) -> float:
        """Bytes per image on disk."""
        with tempfile.TemporaryDirectory(prefix="farther-estimate-") as folder:
            self.regions.write(Path(folder) / "regions")
            files = listed(Path(folder) / "regions", "**/*.parquet")
            return sum(file.stat().st_size for file in files) / self.images

    def __str__(self) -> str:
        regions = f"{len(self.regions) / self.images:.1f} regions"
        kilobytes = f"{self.bytes / 1000:.1f} kB"
        sample = f"{self.images} measured, {self.memory}"
        return f"{self.seconds:.3f} s, {regions} and {kilobytes} per image ({sample})"

    def columns(self) -> str:
        """Bytes per region of each column of vectors, before compression."""
        texts = []
        for name in self.regions.frame.columns:
            values = self.regions.array(name)
            if name == "box" or values is None or values.ndim != 2 or not len(values):
                continue
            texts.append(f"{name} {size(values[0].nbytes)}")
        return ", ".join(texts)


def measure_detector(detector: Detector, files: Sequence[Path], batch_size: int) -> Measured:
    """A detector on image files; one batch goes first to warm up."""
    detector.detect(files[:batch_size], batch_size=batch_size)
    return _measured(lambda: detector.detect(files, batch_size=batch_size), len(files))


def measure_pass(
    extra_inference: Pass, detector: Detector, files: Sequence[Path], batch_size: int
) -> Measured:
    """A pass over at most one batch of image files.

    It may take many times as long as the detector. One image goes first to warm up.

    Raises:
        ParameterError: the detector cannot do it.
        DataError: the pass needs the run's own regions.
    """
    import torch

    extra_inference.check(detector)
    prepared = []
    image_ids = []
    for file in files[:batch_size]:
        prepared.append(extra_inference.prepare(detector, as_pixels(file, str(file))))
        image_ids.append(str(file))

    def call(count: int) -> Regions:
        with torch.inference_mode(not extra_inference.needs_gradients):
            return extra_inference.forward(detector, prepared[:count], image_ids[:count])

    call(1)
    return _measured(lambda: call(len(prepared)), len(prepared))


def _measured(call: Callable[[], Regions], images: int) -> Measured:
    seconds, regions = timed(call)
    return Measured(images, seconds / images, _peak(), regions)


def _peak() -> str:
    """The largest amount of memory so far: of the GPU, or of this process."""
    import torch

    if torch.cuda.is_available():
        return f"{torch.cuda.max_memory_allocated() / GIB:.1f} GiB of GPU memory"

    unit = 1 if sys.platform == "darwin" else 1024
    return f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / GIB:.1f} GiB of memory"
