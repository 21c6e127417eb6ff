"""Mask R-CNN as torchvision builds it (He et al. 2017, arXiv:1703.06870)."""

from __future__ import annotations

from typing import ClassVar

from pydantic.dataclasses import dataclass

from farther.detectors.base import register
from farther.detectors.faster_rcnn import FasterRCNN
from farther.registry import STRICT


@register("mask_rcnn")
@dataclass(config=STRICT, kw_only=True)
class MaskRCNN(FasterRCNN):
    """torchvision's Mask R-CNN: its boxes, scores and labels, with everything that OOD scores read.

    The masks are drawn in boxes that are already detected, so the boxes are those of a Faster R-CNN with the weights
    that the mask branch does not use. Only that part is built and loaded: masks are neither computed nor stored. See
    `FasterRCNN` for what is stored and for the parameters.
    """

    unused_weights: ClassVar[tuple[str, ...]] = ("roi_heads.mask_head.", "roi_heads.mask_predictor.")
