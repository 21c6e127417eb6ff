"""SSD (Liu et al. 2016, "SSD: Single Shot MultiBox Detector") and SSDLite of torchvision.

SSDLite is that of MobileNetV2 (Sandler et al. 2018, Section 6.2), here on MobileNetV3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass as plain_dataclass
from functools import cached_property
from typing import Any

import torch
from pydantic.dataclasses import dataclass
from torch import Tensor
from torchvision.models.detection._utils import _topk_min
from torchvision.ops import batched_nms

from farther.detectors.base import Count, Fraction, register
from farther.detectors.dense import AnchorDetector, AnchorOutput, decode
from farther.detectors.networks.detection import ImageDetections
from farther.detectors.networks.torchvision_builders import BUILDERS, check_columns
from farther.detectors.networks.weights import (
    LAST_LAYERS,
    BlankWeights,
    load_weights,
    read_weights,
)
from farther.detectors.settings import BoxSelection
from farther.naming.registry import STRICT
from farther.tables import Header


@plain_dataclass(frozen=True)
class SSDKind:
    """Settings of one of torchvision's networks.

    Args:
        iou: Of two boxes of one class that overlap more than this, the better one stays.
        candidates: Number of boxes of each class, the best, that take part in NMS.
        stride: Stride in pixels of the backbone's last layer, which is the second level.
    """

    iou: float
    candidates: int
    stride: int


#: Settings by the name of torchvision's builder.
KINDS = {
    "ssd300_vgg16": SSDKind(iou=0.45, candidates=400, stride=16),
    "ssdlite320_mobilenet_v3_large": SSDKind(iou=0.55, candidates=300, stride=32),
}

#: Number of the level of the backbone's last layer; levels differ in their numbers of channels.
BACKBONE_LEVEL = 1


@register("ssd")
@dataclass(config=STRICT, kw_only=True)
class SingleShotDetector(AnchorDetector):
    """torchvision's SSD300 on VGG-16, or SSDLite320 on MobileNetV3.

    Detections are those of the network's own forward pass. The names of the weights of a state dict
    tell which network it is of. Images are scaled to 300 × 300 or 320 × 320 pixels, whatever their
    shape.

    Logits are those of all classes at the anchor of the box, with the background in column 0,
    before the softmax. Each of the six levels has its own last layer, a convolution: there is no
    last linear layer on a vector, hence neither `features` nor a `weight`. `latent` pools the
    backbone's last layer (1,024 channels of VGG-16's fc7; 480 or 960 of MobileNetV3) over each
    detection's box, and averages it per channel.

    Args:
        nms_iou: See `LatentDetector`; the default is torchvision's: 0.45 for SSD, 0.55 for SSDLite.
        candidates: Number of boxes of each class, the best, that take part in NMS; the default is
            torchvision's: 400 for SSD, 300 for SSDLite.

    Raises:
        DataError: the file is not the state dict of one of them, or the number of classes does not
            fit.
    """

    nms_iou: Fraction | None = None  # type: ignore[assignment]
    candidates: Count | None = None

    @property
    def kind(self) -> SSDKind:
        """Settings of the network that the weights fit."""
        return KINDS[self.fit.builder.partition(",")[0]]

    @cached_property
    def network(self) -> Any:
        """See `Detector.network`."""
        fit = self.fit
        check_columns(self.weights, self.classes, fit.columns)
        with BlankWeights():
            network = BUILDERS[fit.builder].build(fit.columns)
        description = f"{fit.builder} with {fit.columns} columns"
        weights = read_weights(self.weights, LAST_LAYERS)
        load_weights(network, self.weights, weights, description)
        return self.to_device(network.eval())

    @cached_property
    def _header(self) -> Header:
        check_columns(self.weights, self.classes, self.fit.columns)
        return Header(
            classes=("background", *self.classes),
            background_index=0,
            activation="softmax",
            score_threshold=self.score_threshold,
            detector=self.identity,
        )

    def header(self) -> Header:
        """See `Detector.header`."""
        return self._header

    def selection(self) -> BoxSelection:
        """See `AnchorDetector.selection`; the limit of candidates is per class."""
        iou = self.kind.iou if self.nms_iou is None else self.nms_iou
        candidates = self.candidates or self.kind.candidates
        return BoxSelection(self.score_threshold, iou, self.max_detections, candidates=candidates)

    def scores(self, head_output: Mapping[str, Tensor]) -> Tensor:
        """See `AnchorDetector.scores`."""
        scores = head_output["cls_logits"].softmax(-1)
        scores[..., 0] = 0.0
        return scores

    def anchors_per_level(self, levels: Sequence[Tensor]) -> list[int]:
        """See `AnchorDetector.anchors_per_level`."""
        anchors_per_cell = self.network.anchor_generator.num_anchors_per_location()
        counts = []
        for level, per_cell in zip(levels, anchors_per_cell, strict=True):
            counts.append(level.shape[2] * level.shape[3] * per_cell)
        return counts

    def latent_maps(self, levels: Sequence[Tensor]) -> tuple[Sequence[Tensor], int]:
        """See `AnchorDetector.latent_maps`."""
        return [levels[BACKBONE_LEVEL]], self.kind.stride

    def select(self, output: AnchorOutput, counts: Sequence[int]) -> ImageDetections:
        """Applies threshold, the limit of candidates, and NMS per class, as torchvision does."""
        selection = self.selection()
        boxes = decode(self.network, output.deltas, output.anchors, output.size)
        rows_by_class = []
        labels_by_class = []
        for label in range(1, output.scores.shape[1]):
            class_scores = output.scores[:, label]
            above = torch.where(class_scores > selection.score_threshold)[0]
            count = _topk_min(above, selection.candidates, 0)
            highest = class_scores[above].topk(count).indices
            rows_by_class.append(above[highest])
            labels_by_class.append(torch.full_like(highest, label))
        rows = torch.cat(rows_by_class)
        labels = torch.cat(labels_by_class)
        confidence = output.scores[rows, labels]
        kept = batched_nms(boxes[rows], confidence, labels, selection.iou)
        kept = kept[: selection.max_detections]
        return ImageDetections(boxes[rows[kept]], confidence[kept], labels[kept], rows[kept])
