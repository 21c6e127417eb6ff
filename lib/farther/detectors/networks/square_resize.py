"""Preprocessing of the package `rfdetr`: images are resized to a square, as floats."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate


@dataclass(frozen=True)
class SquareResizeImageProcessor:
    """An image processor with the fields and the call of those of transformers that farther uses.

    The processors of transformers resize images of bytes, and round; `predict` of rfdetr divides by
    255 first.

    Args:
        size: Height and width of the network's input in pixels, whatever the image's shape.
        antialias: Average over all pixels that fall into one, as rfdetr did until 2026; else
            interpolate between the nearest four.
        image_mean: Of red, green and blue, from 0 to 1.
        image_std: Of red, green and blue.
        rescale_factor: 1 / 255: bytes become numbers from 0 to 1.
    """

    size: dict[str, int]
    antialias: bool
    image_mean: tuple[float, ...]
    image_std: tuple[float, ...]
    rescale_factor: float = 1 / 255
    do_rescale: bool = True
    do_normalize: bool = True

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> SquareResizeImageProcessor:
        """A processor from the fields that `to_dict` gives.

        Raises:
            TypeError: a field is missing or unknown.
        """
        arguments = dict(fields)
        arguments.pop("image_processor_type", None)
        return cls(**arguments)

    def to_dict(self) -> dict[str, Any]:
        """All fields, as JSON."""
        fields: dict[str, Any] = {"image_processor_type": type(self).__name__}
        for name, value in asdict(self).items():
            fields[name] = list(value) if isinstance(value, tuple) else value
        return fields

    def __call__(self, images: list[np.ndarray], **_: Any) -> dict[str, Tensor]:
        """Preprocesses images.

        Args:
            images: uint8, shape (H, W, 3) each.

        Returns:
            `pixel_values`, shape (B, 3, h, w), float32.
        """
        size = (self.size["height"], self.size["width"])
        mean = torch.tensor(self.image_mean)[:, None, None]
        std = torch.tensor(self.image_std)[:, None, None]

        resized = []
        for image in images:
            pixels = torch.from_numpy(image).permute(2, 0, 1).float().div_(255)[None]
            batch = interpolate(
                pixels, size, mode="bilinear", align_corners=False, antialias=self.antialias
            )
            resized.append(batch[0])
        return {"pixel_values": (torch.stack(resized) - mean) / std}
