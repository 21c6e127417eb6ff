"""The steps of a Faster R-CNN, one by one, so that inference and training can keep intermediate results.

They call the parts of torchvision's model and give the same numbers. They add: the RPN's shared activations, the
box head's features, and for each detection the proposal that it came from.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torchvision.models.detection import FasterRCNN
from torchvision.models.detection.image_list import ImageList
from torchvision.models.detection.rpn import concat_box_prediction_layers
from torchvision.ops import batched_nms
from torchvision.ops import boxes as box_ops

#: Boxes narrower than this, in pixels of the resized image, are dropped, as torchvision does.
SMALLEST_SIDE = 1e-2


@dataclass
class ProposalPass:
    """Output of the region proposal network for B images with A anchors in all.

    Args:
        shared: Activations of its shared convolution, one (B, C, H, W) a pyramid level.
        objectness: (B × A, 1) logits.
        deltas: (B × A, 4) box regressions.
        anchors: Per image (A, 4).
        proposals: Per image (P, 4), pixels of the resized image.
    """

    shared: list[Tensor]
    objectness: Tensor
    deltas: Tensor
    anchors: list[Tensor]
    proposals: list[Tensor]


def propose(network: FasterRCNN, images: ImageList, levels: dict[str, Tensor]) -> ProposalPass:
    """Runs the region proposal network; boxes are computed in float32 whatever the network computes in."""
    rpn = network.rpn
    shared = [rpn.head.conv(level) for level in levels.values()]
    per_level = [rpn.head.cls_logits(t).float() for t in shared]
    counts = [scores[0].numel() for scores in per_level]
    anchors = rpn.anchor_generator(images, list(levels.values()))
    objectness, deltas = concat_box_prediction_layers(per_level, [rpn.head.bbox_pred(t).float() for t in shared])
    boxes = rpn.box_coder.decode(deltas.detach(), anchors).view(len(anchors), -1, 4)
    proposals, _ = rpn.filter_proposals(boxes, objectness, images.image_sizes, counts)
    return ProposalPass(shared, objectness, deltas, anchors, proposals)


@dataclass
class Detections:
    """N detections of one image.

    Args:
        boxes: (N, 4), pixels of the resized image.
        scores: (N,) the detector's.
        labels: (N,) logits columns.
        rows: (N,) the proposal, or anchor, each came from.
    """

    boxes: Tensor
    scores: Tensor
    labels: Tensor
    rows: Tensor


def select_detections(network: FasterRCNN, boxes: Tensor, scores: Tensor, size: tuple[int, int]) -> Detections:
    """Threshold, non-maximum suppression per class, and the best of what is left, as torchvision does.

    Args:
        boxes: (P, K, 4) a box for each proposal and column.
        scores: (P, K) softmax scores; column 0 is the background.
        size: Height and width of the resized image.
    """
    heads = network.roi_heads
    proposals, columns = torch.where(scores[:, 1:] > heads.score_thresh)
    columns = columns + 1
    candidates = box_ops.clip_boxes_to_image(boxes[proposals, columns], size)
    kept = box_ops.remove_small_boxes(candidates, SMALLEST_SIDE)
    candidates, proposals, columns = candidates[kept], proposals[kept], columns[kept]
    confidence = scores[proposals, columns]
    kept = batched_nms(candidates, confidence, columns, heads.nms_thresh)[: heads.detections_per_img]
    return Detections(candidates[kept], confidence[kept], columns[kept], proposals[kept])
