"""PixMix: training images mixed with pictures of complex structure, such as fractals."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from PIL import Image, ImageEnhance, ImageOps
from pydantic import Field, PositiveFloat
from pydantic.dataclasses import dataclass

from farther.naming.registry import STRICT
from farther_training.picture_folder import PictureFolder
from farther_training.ranges import Count

#: Operations of AugMix that do not overlap with the corruptions of ImageNet-C, and those that do.
OPERATIONS = (
    "autocontrast",
    "equalize",
    "posterize",
    "rotate",
    "solarize",
    "shear_x",
    "shear_y",
    "shift_x",
    "shift_y",
)
COLOUR_OPERATIONS = ("colour", "contrast", "brightness", "sharpness")

#: Levels of the operations are tenths of their largest strength.
HIGHEST_LEVEL = 10
#: Lowest level that is drawn.
LOWEST_LEVEL = 0.1
#: Strength of each operation at the highest level.
POSTERIZED_BITS = 4
DEGREES = 30
SOLARIZED = 256
SHEAR = 0.3
SHIFT = 1 / 3
ENHANCEMENT = 1.8

#: Values of a picture below this are raised to it before a negative power is taken.
SMALLEST = 1e-37


@dataclass(config=STRICT, kw_only=True)
class PixMix(PictureFolder):
    """Mixes training images with changed copies of themselves and with pictures, up to k times.

    Images have the network's size. The mixed image starts as the image, or (with probability ½) as
    a changed copy. Then, 0 to k times, a changed copy or the picture (½ each) is added to it or
    multiplied by it (½ each); the result is clipped to 0 … 1. Labels stay. Mixed images are rounded
    to bytes, as the network reads images.

    Formula:
        add: ½ (a (2x − 1) + b (2y − 1) + 1); multiply: ½ (2x)^a (2y)^b, with a ~ Beta(β, 1) and b ~
        Beta(1, β), or (½ each) a = 1 + r and b = −s with r, s ~ Beta(1, β)

    Args:
        folder: Folder of the pictures to mix in, at any depth; in the paper fractals and feature
            visualisations.
        severity: Highest level of the operations that change a copy, of 10.
        most: k.
        beta: β: the higher, the less is mixed in.
        all_operations: Whether colour, contrast, brightness and sharpness are changed too, which
            overlap with the corruptions of ImageNet-C. The paper leaves them out for its
            robustness; OpenOOD takes them.

    References:
        Hendrycks et al., "PixMix: Dreamlike Pictures Comprehensively Improve Safety Measures",
        2022, Section 3, arXiv:2112.05135. Code: https://github.com/andyzoujm/pixmix

        Hendrycks et al., "AugMix", 2020, arXiv:1912.02781: the operations.
    """

    severity: Annotated[float, Field(ge=LOWEST_LEVEL, le=HIGHEST_LEVEL)] = 3
    most: Count = 4
    beta: PositiveFloat = 3
    all_operations: bool = False

    def mixed(self, pixels: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """An image (H, W, 3), uint8, mixed as `random` determines.

        Raises:
            DataError: the folder has no pictures, or one cannot be read.
        """
        height, width = pixels.shape[:2]
        (picture,) = self.images(1, random)
        picture = random_crop(picture, height, width, random)
        if random.random() < 0.5:
            mixed = as_floats(self.changed(pixels, random))
        else:
            mixed = as_floats(pixels)
        for _ in range(random.integers(self.most + 1)):
            if random.random() < 0.5:
                added = as_floats(self.changed(pixels, random))
            else:
                added = as_floats(picture)
            a, b = exponents(self.beta, random)
            if random.random() < 0.5:
                mixed = add(mixed, added, a, b)
            else:
                mixed = multiply(mixed, added, a, b)
            mixed = mixed.clip(0, 1)
        return np.round(255 * mixed).astype(np.uint8)

    def changed(self, pixels: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """A copy of an image (H, W, 3), uint8, changed by one operation of a random level."""
        operations: tuple[str, ...] = OPERATIONS
        if self.all_operations:
            operations = OPERATIONS + COLOUR_OPERATIONS
        operation = operations[random.integers(len(operations))]
        strength = random.uniform(LOWEST_LEVEL, self.severity) / HIGHEST_LEVEL
        sign = -1 if random.random() < 0.5 else 1
        return np.array(change(Image.fromarray(pixels), operation, strength, sign))


def change(image: Image.Image, operation: str, strength: float, sign: int) -> Image.Image:
    """An image of the same size, changed by one of AugMix's operations.

    Args:
        image: RGB.
        operation: A name of `OPERATIONS` or `COLOUR_OPERATIONS`.
        strength: 0 to 1, as a share of the operation's largest strength.
        sign: 1 or −1, the direction of a rotation, a shear or a shift.
    """
    if operation == "autocontrast":
        return ImageOps.autocontrast(image)
    if operation == "equalize":
        return ImageOps.equalize(image)
    if operation == "posterize":
        return ImageOps.posterize(image, max(1, POSTERIZED_BITS - int(strength * POSTERIZED_BITS)))
    if operation == "solarize":
        return ImageOps.solarize(image, SOLARIZED - int(strength * SOLARIZED))
    if operation == "rotate":
        return image.rotate(sign * int(strength * DEGREES), resample=Image.Resampling.BILINEAR)
    if operation in ("shear_x", "shear_y", "shift_x", "shift_y"):
        return _moved(image, operation, sign * strength)
    factor = strength * ENHANCEMENT + 0.1
    enhancers = {
        "colour": ImageEnhance.Color,
        "contrast": ImageEnhance.Contrast,
        "brightness": ImageEnhance.Brightness,
        "sharpness": ImageEnhance.Sharpness,
    }
    return enhancers[operation](image).enhance(factor)


def _moved(image: Image.Image, operation: str, strength: float) -> Image.Image:
    """An image sheared or shifted in one direction; what comes in is black."""
    width, height = image.size
    matrices = {
        "shear_x": (1, strength * SHEAR, 0, 0, 1, 0),
        "shear_y": (1, 0, 0, strength * SHEAR, 1, 0),
        "shift_x": (1, 0, int(strength * SHIFT * width), 0, 1, 0),
        "shift_y": (1, 0, 0, 0, 1, int(strength * SHIFT * height)),
    }
    return image.transform(
        image.size, Image.Transform.AFFINE, matrices[operation], resample=Image.Resampling.BILINEAR
    )


def random_crop(
    pixels: np.ndarray, height: int, width: int, random: np.random.Generator
) -> np.ndarray:
    """A random part, of a height and width, of a picture (H, W, 3), uint8.

    The picture is scaled until it just covers the part.
    """
    image = Image.fromarray(pixels)
    scale = max(height / image.height, width / image.width)
    scaled_width = max(width, round(scale * image.width))
    scaled_height = max(height, round(scale * image.height))
    image = image.resize((scaled_width, scaled_height), Image.Resampling.BILINEAR)
    left = int(random.integers(image.width - width + 1))
    top = int(random.integers(image.height - height + 1))
    return np.array(image.crop((left, top, left + width, top + height)))


def exponents(beta: float, random: np.random.Generator) -> tuple[float, float]:
    """a and b of the formula."""
    if random.random() < 0.5:
        return random.beta(beta, 1), random.beta(1, beta)
    return 1 + random.beta(1, beta), -random.beta(1, beta)


def add(x: np.ndarray, y: np.ndarray, a: float, b: float) -> np.ndarray:
    """½ (a (2x − 1) + b (2y − 1) + 1) of images from 0 to 1."""
    return (a * (2 * x - 1) + b * (2 * y - 1) + 1) / 2


def multiply(x: np.ndarray, y: np.ndarray, a: float, b: float) -> np.ndarray:
    """½ (2x)^a (2y)^b of images from 0 to 1."""
    return (2 * x) ** a * np.maximum(2 * y, SMALLEST) ** b / 2


def as_floats(pixels: np.ndarray) -> np.ndarray:
    """Bytes as numbers from 0 to 1."""
    return pixels / 255
