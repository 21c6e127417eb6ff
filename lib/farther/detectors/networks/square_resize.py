"""Preprocessing of the package `rfdetr`: a square of fixed size, from floats, without bytes in between."""

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
            between the nearest four.
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
        return cls(
            **{name: value for name, value in fields.items() if name != "image_processor_type"}
        )

    def to_dict(self) -> dict[str, Any]:
        """All fields, as JSON."""
        described = {
            name: list(v) if isinstance(v, tuple) else v for name, v in asdict(self).items()
        }
        return {"image_processor_type": type(self).__name__, **described}

    def __call__(self, images: list[np.ndarray], **_: Any) -> dict[str, Tensor]:
        """Images of shape (H, W, 3), uint8 → `pixel_values`, (B, 3, h, w), float32."""
        size = (self.size["height"], self.size["width"])
        mean = torch.tensor(self.image_mean)[:, None, None]
        std = torch.tensor(self.image_std)[:, None, None]

        resized = []
        for image in images:
            pixels = torch.from_numpy(image).permute(2, 0, 1).float().div_(255)[None]
            resized.append(
                interpolate(
                    pixels, size, mode="bilinear", align_corners=False, antialias=self.antialias
                )[0]
            )
        return {"pixel_values": (torch.stack(resized) - mean) / std}
