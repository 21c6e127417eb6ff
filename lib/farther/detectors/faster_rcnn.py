"""Faster R-CNN as torchvision builds it (Ren et al. 2015)."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from pydantic.dataclasses import dataclass

from farther.detectors.base import Count, Detector, registry
from farther.errors import ParameterError
from farther.registry import STRICT
from farther.tables import Header, Regions

if TYPE_CHECKING:
    import torch

    from farther.detectors.networks.architectures import Blueprint
    from farther.detectors.networks.detection import RegionNetwork


@registry.register("faster_rcnn")
@dataclass(config=STRICT, kw_only=True)
class FasterRCNN(Detector):
    """torchvision's Faster R-CNN, with everything that OOD scores read.

    Logits are the box head's, the background in column 0; `features` is the input of their linear layer. `latent` pools
    the RPN's shared activations over each detection's box and averages them per channel, as LaRD does (Arnez et al. 2024).

    Args:
        latent_size: Cells along one side of the grid that `latent` is pooled from.
        latent_sampling: Samples along one side of a cell; 0 takes as many as fit.
        architecture: For a PyTorch file of weights alone: "resnet50_fpn" or "small". A safetensors checkpoint says it itself.
        classes: For a PyTorch file: its classes, without the background, in the order of its logits.
        min_size: For a PyTorch file: images are scaled to this many pixels on the shorter side …
        max_size: … unless the longer one would then have more than this.

    Raises:
        ParameterError: a PyTorch file is given without its classes, or a safetensors checkpoint with them.
    """

    name: ClassVar[str] = "faster_rcnn"

    latent_size: Count = 9
    latent_sampling: int = 2
    architecture: str | None = None
    classes: tuple[str, ...] | None = None
    min_size: Count | None = None
    max_size: Count | None = None
