"""Preprocessing of images for ONNX graphs, as in the own code of each exporter."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import interpolate

Resize = Literal["letterbox", "letterbox_corner", "shortest_edge", "stretch", "none"]
Interpolation = Literal["opencv", "pillow", "torch"]
Channels = Literal["rgb", "bgr"]
PixelRange = Literal[1, 255]
Triple = tuple[float, float, float]

#: Mean and standard deviation of ImageNet's pixels between 0 and 1.
IMAGENET_MEAN: Triple = (0.485, 0.456, 0.406)
IMAGENET_STD: Triple = (0.229, 0.224, 0.225)
ZEROS: Triple = (0.0, 0.0, 0.0)
ONES: Triple = (1.0, 1.0, 1.0)
#: Grey of the padding of most detectors.
GREY = 114


@dataclass(frozen=True)
class Preprocessing:
    """Settings of the preprocessing of images.

    Args:
        resize: "letterbox" keeps the shape and pads both sides, "letterbox_corner" pads right and
            below, "stretch" scales both sides to the input, "shortest_edge" keeps the shape without
            padding, "none" leaves the image as it is.
        interpolation: "opencv" (bilinear, 8 bits), "pillow" (bilinear, 8 bits, antialiased) or
            "torch" (bilinear, of the pixels as float32).
        padding: Value of the padded pixels, between 0 and 255; or red, green and blue.
        channels: Their order.
        pixel_range: Largest value of a pixel before mean and std.
        mean: Subtracted from pixels between 0 and `pixel_range`.
        std: The differences are divided by it.
        longest: Most pixels of the longer side, for "shortest_edge"; None for any number.
        divisor: Sides of an input that varies are padded to a multiple of it; None pads to the
            whole size.
        floors: Sides are rounded down, and boxes mapped by the scale before the rounding, as in
            YOLOX.
        exact_offset: Boxes are mapped by scale and padding before these are rounded, as in YOLOv5.
    """

    resize: Resize = "stretch"
    interpolation: Interpolation = "pillow"
    padding: float | Triple = GREY
    channels: Channels = "rgb"
    pixel_range: PixelRange = 1
    mean: Triple = ZEROS
    std: Triple = ONES
    longest: int | None = None
    divisor: int | None = None
    floors: bool = False
    exact_offset: bool = False


@dataclass(frozen=True)
class Placement:
    """Place of an image in the input: x_input = x_image · scale + offset.

    Args:
        image: Height and width of the image.
        canvas: Height and width of the input.
        scale: In x and y.
        offset: In x and y, in pixels of the input.
    """

    image: tuple[int, int]
    canvas: tuple[int, int]
    scale: tuple[float, float]
    offset: tuple[float, float] = (0.0, 0.0)

    def to_image(self, boxes: Tensor) -> Tensor:
        """Converts corners (N, 4) from pixels of the input to pixels of the image."""
        offset = torch.tensor(self.offset * 2, dtype=boxes.dtype)
        scale = torch.tensor(self.scale * 2, dtype=boxes.dtype)
        return (boxes - offset) / scale

    def of_fractions(self, boxes: Tensor) -> Tensor:
        """Converts corners (N, 4) from fractions of the input to pixels of the image."""
        height, width = self.canvas
        sides = torch.tensor([width, height, width, height], dtype=boxes.dtype)
        return self.to_image(boxes * sides)

    def clipped(self, boxes: Tensor) -> Tensor:
        """Boxes (N, 4) cut off at the image's border."""
        height, width = self.image
        limits = torch.tensor([width, height, width, height], dtype=boxes.dtype)
        return torch.minimum(boxes.clamp(min=0), limits)


@dataclass(frozen=True)
class Canvas:
    """Size of the input.

    Args:
        height: Its height, or the largest one if it varies; the shorter side for "shortest_edge".
        width: Likewise.
        varies: The graph takes other sides, too.
    """

    height: int
    width: int
    varies: bool = False


def place(
    image: np.ndarray, preprocessing: Preprocessing, canvas: Canvas | None
) -> tuple[np.ndarray, Placement]:
    """Preprocesses an image.

    Args:
        image: ndarray of shape (H, W, 3), uint8, red green blue.
        preprocessing: The settings.
        canvas: Size of the input; None for "none".

    Returns:
        ndarray of shape (3, H', W'), float32, and the place of the image in it.
    """
    if canvas is None or preprocessing.resize == "none":
        height, width = image.shape[:2]
        placement = Placement((height, width), (height, width), (1.0, 1.0))
        return _normalised(image, preprocessing), placement
    pixels, placement = RESIZES[preprocessing.resize](image, preprocessing, canvas)
    return _normalised(pixels, preprocessing), placement


def _normalised(pixels: np.ndarray, preprocessing: Preprocessing) -> np.ndarray:
    """Pixels (H, W, 3) between 0 and 255 as (3, H, W), normalised."""
    if preprocessing.channels == "bgr":
        pixels = pixels[..., ::-1]
    values = pixels.astype(np.float32)
    if preprocessing.pixel_range == 1:
        values = values / np.float32(255)
    if preprocessing.mean != ZEROS or preprocessing.std != ONES:
        mean = np.array(preprocessing.mean, dtype=np.float32)
        std = np.array(preprocessing.std, dtype=np.float32)
        values = (values - mean) / std
    return np.ascontiguousarray(values.transpose(2, 0, 1))


def _resized(
    image: np.ndarray, height: int, width: int, interpolation: Interpolation
) -> np.ndarray:
    """Pixels (height, width, 3) of a resized image, between 0 and 255; float32 for "torch"."""
    if image.shape[:2] == (height, width):
        return image
    if interpolation == "opencv":
        import cv2  # only graphs of Ultralytics, YOLOv5 and OpenMMLab need it

        return cv2.resize(image, (width, height), interpolation=cv2.INTER_LINEAR)
    if interpolation == "pillow":
        return np.asarray(Image.fromarray(image).resize((width, height), Image.Resampling.BILINEAR))
    values = torch.from_numpy(image.copy()).permute(2, 0, 1)[None].float() / 255
    scaled = interpolate(values, size=(height, width), mode="bilinear", align_corners=False)
    return (scaled[0].permute(1, 2, 0) * 255).numpy()


def _stretch(
    image: np.ndarray, preprocessing: Preprocessing, canvas: Canvas
) -> tuple[np.ndarray, Placement]:
    """Scales both sides to the canvas."""
    height, width = image.shape[:2]
    pixels = _resized(image, canvas.height, canvas.width, preprocessing.interpolation)
    scale = (canvas.width / width, canvas.height / height)
    return pixels, Placement((height, width), (canvas.height, canvas.width), scale)


def _shortest_edge(
    image: np.ndarray, preprocessing: Preprocessing, canvas: Canvas
) -> tuple[np.ndarray, Placement]:
    """Scales the shorter side to the canvas, and the longer one to `longest` at most."""
    height, width = image.shape[:2]
    scale = canvas.height / min(height, width)
    if preprocessing.longest is not None:
        scale = min(scale, preprocessing.longest / max(height, width))
    new_height = int(height * scale + 0.5)
    new_width = int(width * scale + 0.5)
    pixels = _resized(image, new_height, new_width, preprocessing.interpolation)
    factors = (new_width / width, new_height / height)
    return pixels, Placement((height, width), (new_height, new_width), factors)


def _letterbox(
    image: np.ndarray, preprocessing: Preprocessing, canvas: Canvas
) -> tuple[np.ndarray, Placement]:
    """Keeps the shape, and pads both sides by the same; as Ultralytics and YOLOv5 do."""
    height, width = image.shape[:2]
    gain = min(canvas.height / height, canvas.width / width)
    new_height = max(round(height * gain), 1)
    new_width = max(round(width * gain), 1)
    pad_x = canvas.width - new_width
    pad_y = canvas.height - new_height
    if canvas.varies and preprocessing.divisor is not None:
        pad_x %= preprocessing.divisor
        pad_y %= preprocessing.divisor
    left = round(pad_x / 2 - 0.1)
    top = round(pad_y / 2 - 0.1)
    full_height = new_height + pad_y
    full_width = new_width + pad_x
    pixels = np.full((full_height, full_width, 3), preprocessing.padding, dtype=np.float32)
    scaled = _resized(image, new_height, new_width, preprocessing.interpolation)
    pixels[top : top + new_height, left : left + new_width] = scaled

    factors = (new_width / width, new_height / height)
    offset = (float(left), float(top))
    if preprocessing.exact_offset:
        gain = min(full_height / height, full_width / width)
        factors = (gain, gain)
        offset = ((full_width - width * gain) / 2, (full_height - height * gain) / 2)
    return pixels, Placement((height, width), (full_height, full_width), factors, offset)


def _letterbox_corner(
    image: np.ndarray, preprocessing: Preprocessing, canvas: Canvas
) -> tuple[np.ndarray, Placement]:
    """Keeps the shape, and pads right and below; as YOLOX and MMDetection do."""
    height, width = image.shape[:2]
    full_height = canvas.height
    full_width = canvas.width
    if canvas.varies and (height > width) != (full_height > full_width):
        full_height, full_width = full_width, full_height
    gain = min(full_height / height, full_width / width)
    if preprocessing.floors:
        new_height = int(height * gain)
        new_width = int(width * gain)
        factors = (gain, gain)
    else:
        new_height = min(int(height * gain + 0.5), full_height)
        new_width = min(int(width * gain + 0.5), full_width)
        factors = (new_width / width, new_height / height)
    if canvas.varies and preprocessing.divisor is not None:
        full_height = math.ceil(new_height / preprocessing.divisor) * preprocessing.divisor
        full_width = math.ceil(new_width / preprocessing.divisor) * preprocessing.divisor
    pixels = np.full((full_height, full_width, 3), preprocessing.padding, dtype=np.float32)
    scaled = _resized(image, new_height, new_width, preprocessing.interpolation)
    pixels[:new_height, :new_width] = scaled
    return pixels, Placement((height, width), (full_height, full_width), factors)


#: Resizes an image: (image, preprocessing, canvas) to pixels (H', W', 3) and its placement.
RESIZES: dict[str, Callable[[np.ndarray, Preprocessing, Canvas], tuple[np.ndarray, Placement]]] = {
    "letterbox": _letterbox,
    "letterbox_corner": _letterbox_corner,
    "shortest_edge": _shortest_edge,
    "stretch": _stretch,
}
