"""RetinaNet as torchvision builds it (Lin et al. 2017, "Focal Loss for Dense Object Detection")."""

from __future__ import annotations

from typing import Literal

from pydantic.dataclasses import dataclass

from farther.detectors.base import register
from farther.detectors.dense import DenseDetector
from farther.registry import STRICT


@register("retinanet")
@dataclass(config=STRICT, kw_only=True)
class RetinaNet(DenseDetector):
    """torchvision's RetinaNet. Boxes, scores and labels are those of its own forward pass.

    A box's score is the sigmoid of its class's logit. See `DenseDetector` for what is stored and its parameters.

    Args:
        architecture: "resnet50_fpn", or "resnet50_fpn_v2" (its head normalises groups of channels, its coarsest levels
            follow the backbone).
    """

    architecture: Literal["resnet50_fpn", "resnet50_fpn_v2"] = "resnet50_fpn"

    @property
    def builder(self) -> str:
        """See `DenseDetector.builder`."""
        return f"retinanet_{self.architecture}"
