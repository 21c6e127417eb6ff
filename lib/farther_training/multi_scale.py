"""Random sizes and crops of training images, in the place of one size."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from PIL import Image

from farther_training.recipe import MultiScale
from farther_training.samples import Sample, move_boxes


@dataclass(frozen=True)
class ScaleRandomly:
    """Resizes a sample, or resizes, crops and resizes it again, as `MultiScale` describes.

    Args:
        params: Sizes and probabilities.
        min_visible: Least fraction of a box that must be in the crop; other boxes are dropped.
    """

    params: MultiScale
    min_visible: float = 0.0

    def __call__(self, sample: Sample, random: np.random.Generator) -> Sample:
        """The sample at another size, determined by `random`."""
        params = self.params
        if random.random() < params.crop_probability:
            shorter = draw(params.shorter_before, random)
            sample = resized(sample, shorter, params.longest_before)
            sample = cropped(sample, params.crop, self.min_visible, random)
        return resized(sample, draw(params.shorter, random), params.longest)


def draw(limits: tuple[int, int], random: np.random.Generator) -> int:
    """A whole number of a range that includes both of its limits."""
    lowest, highest = limits
    return int(random.integers(lowest, highest + 1))


def resized(sample: Sample, shorter: int, longest: int) -> Sample:
    """A sample scaled to `shorter` pixels on its shorter side.

    It is scaled less where the longer side would exceed `longest`.
    """
    height, width = sample.pixels.shape[:2]
    scale = min(shorter / min(height, width), longest / max(height, width))
    new_width = max(1, round(scale * width))
    new_height = max(1, round(scale * height))
    if (new_width, new_height) == (width, height):
        return sample
    image = Image.fromarray(sample.pixels)
    pixels = np.array(image.resize((new_width, new_height), Image.Resampling.BILINEAR))
    factors = np.array([new_width / width, new_height / height] * 2, dtype=np.float32)
    return Sample(pixels, sample.boxes * factors, sample.labels)


def cropped(
    sample: Sample, side: tuple[int, int], min_visible: float, random: np.random.Generator
) -> Sample:
    """A random part of a sample.

    Boxes are clipped to it, and those that are hardly visible are dropped.

    Args:
        sample: The sample.
        side: Range of height and of width.
        min_visible: Least fraction of a box.
        random: Determines size and place.
    """
    height, width = sample.pixels.shape[:2]
    new_height = min(height, draw(side, random))
    new_width = min(width, draw(side, random))
    top = int(random.integers(height - new_height + 1))
    left = int(random.integers(width - new_width + 1))
    pixels = sample.pixels[top : top + new_height, left : left + new_width]
    shift = np.array([[1.0, -left], [1.0, -top]])
    boxes, is_visible = move_boxes(sample.boxes, shift, new_width, new_height, min_visible)
    return Sample(np.ascontiguousarray(pixels), boxes[is_visible], sample.labels[is_visible])
