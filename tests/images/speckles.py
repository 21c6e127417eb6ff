"""A detector without a network and small images, for tests of the engine that streams images."""

import os
import signal
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from PIL import Image

from farther.detectors.inference import InferenceParams, infer
from farther.tables import Header, Images, Regions

#: Upper left pixel of an image that the detector cannot prepare.
UNPREPARABLE = (255, 0, 0)
#: Upper left pixel of an image for which the detector yields values that are not finite.
NOT_FINITE = (0, 255, 0)
#: Upper left pixel of an image that kills the process that prepares it.
DEADLY = (0, 0, 255)

SMALL = InferenceParams(batch_size=3, workers=0, shard_images=5)


@dataclass
class Speckles:
    """A detector without a network: an image of mean red r has r mod 4 regions, computed from r."""

    version: int = 1
    stop_after: int | None = None
    seen: int = 0
    on_cpu: bool = True
    network: None = None

    @property
    def code_modules(self):
        return (type(self).__module__,)

    def runs_on_cpu(self):
        return self.on_cpu

    def header(self):
        weight = np.arange(6, dtype=np.float32).reshape(2, 3)
        detector = {"name": "speckles", "version": self.version}
        return Header(
            classes=("dog", "cat"), detector=detector, weight=weight, bias=np.zeros(2, np.float32)
        )

    def prepare(self, image):
        corner = tuple(image[0, 0])
        if corner == UNPREPARABLE:
            raise ZeroDivisionError("no red at all")
        if corner == DEADLY:
            os.kill(os.getpid(), signal.SIGKILL)
        if corner == NOT_FINITE:
            return np.full(3, np.nan)
        return image.mean(axis=(0, 1))

    def forward(self, prepared, image_ids):
        self.interrupt(len(prepared))
        tables = []
        for mean, image_id in zip(prepared, image_ids, strict=True):
            tables.append(self.answer(mean, image_id))
        return Regions.concatenate(tables)

    def interrupt(self, count):
        self.seen += count
        if self.stop_after is not None and self.seen > self.stop_after:
            raise KeyboardInterrupt

    def answer(self, mean, image_id):
        count = 1 if np.isnan(mean).any() else int(mean[0]) % 4
        rank = np.arange(count)
        features = np.tile(mean, (count, 1)) + rank[:, None]
        return Regions(
            header=self.header(),
            image_id=[image_id] * count,
            region_id=rank,
            box=np.tile([0, 0, 1, 1], (count, 1)) + rank[:, None],
            score=0.9 - 0.1 * rank,
            label=rank % 2,
            logits=features @ self.header().weight.T,
            features=features.astype(np.float16),
        )


class WaitsToBeKilled(Speckles):
    def interrupt(self, count):
        self.seen += count
        if self.seen > self.stop_after:
            print("waiting", flush=True)
            signal.pause()


def draw(folder, count, sizes=((6, 4), (4, 6), (8, 8))):
    """An images table of `count` images, whose red value is their row."""
    folder.mkdir(parents=True, exist_ok=True)
    for row in range(count):
        Image.new("RGB", sizes[row % len(sizes)], (row, 100, 50)).save(folder / f"{row}.png")
    return Images(
        image_id=[f"image {row}" for row in range(count)],
        dataset=["drawn"] * count,
        file=[f"{row}.png" for row in range(count)],
        width=[sizes[row % len(sizes)][0] for row in range(count)],
        height=[sizes[row % len(sizes)][1] for row in range(count)],
        digest=["-"] * count,
    )


def spoil(folder, row, corner):
    """Sets the upper left pixel of an image."""
    with Image.open(folder / f"{row}.png") as image:
        image.putpixel((0, 0), corner)
        image.save(folder / f"{row}.png")


def content(folder):
    """The bytes of each file of a folder, by its path."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


class World:
    """Runs the engine on 13 images; `run(name, …)` writes the regions folder of that name."""

    def __init__(self, folder):
        self.root = folder / "drawn"
        self.images = draw(self.root, 13)
        self.work = folder / "work"
        self.out = folder / "regions"

    def run(self, name, detector=None, params=SMALL):
        return infer(
            detector or Speckles(),
            self.images,
            {"drawn": self.root},
            self.out / name,
            self.work,
            params,
            progress=False,
        )


def run_until_killed(root, out, work, images, where):
    """A process that a test kills: it, or its only worker, waits in the third shard."""
    detector = WaitsToBeKilled(stop_after=10, on_cpu=where == "in a worker")
    params = replace(SMALL, workers=1 if detector.on_cpu else 2)
    infer(detector, Images.read(images), {"drawn": Path(root)}, out, work, params, progress=False)
