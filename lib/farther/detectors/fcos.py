"""FCOS as torchvision builds it (Tian et al. 2019, "FCOS: Fully Convolutional One-Stage Object Detection")."""

from __future__ import annotations

from pydantic.dataclasses import dataclass

from farther.detectors.base import Fraction, register
from farther.detectors.dense import DenseDetector
from farther.registry import STRICT


@register("fcos")
@dataclass(config=STRICT, kw_only=True)
class FCOS(DenseDetector):
    """torchvision's FCOS. Boxes, scores and labels are those of its own forward pass.

    The network also says how near each anchor is to the middle of its object, its centerness, and a box's score is
    √(sigmoid(logit) · sigmoid(centerness)): it is not a function of the logits alone, which are the class's only. See
    `DenseDetector` for what is stored and its parameters.

    Args:
        nms_iou: See `BoxDetector`; the default is torchvision's.
    """

    nms_iou: Fraction = 0.6

    @property
    def builder(self) -> str:
        """See `DenseDetector.builder`."""
        return "fcos_resnet50_fpn"
