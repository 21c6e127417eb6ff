"""The four losses of Faster R-CNN, and room for more on the box head's features."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torchvision.models.detection import FasterRCNN
from torchvision.models.detection.roi_heads import fastrcnn_loss

from farther.detectors.networks.detection import autocast, to_batch
from farther.detectors.networks.passes import propose
from farther.tools.training.samples import Sample

#: Takes the features (M, D), labels (M,) and logits (M, K) of the sampled proposals (label 0 is the background); gives
#: further losses by name, each already weighted.
ExtraLosses = Callable[[Tensor, Tensor, Tensor], dict[str, Tensor]]


def losses(
    network: FasterRCNN, batch: list[Sample], precision: str, extra_losses: Sequence[ExtraLosses] = ()
) -> dict[str, Tensor]:
    """Losses of one batch (Ren et al. 2015, Equation 1, for both stages); their sum is what training makes small.

    Args:
        network: In training mode.
        precision: What the layers compute in; the losses are computed in float32.
        extra_losses: See `ExtraLosses`.
    """
    device = next(network.parameters()).device
    given = [
        {"boxes": torch.from_numpy(s.boxes).to(device), "labels": torch.from_numpy(s.labels).to(device) + 1}
        for s in batch
    ]
    images, targets = network.transform(to_batch([s.pixels for s in batch], device), given)
    heads = network.roi_heads
    with autocast(device, precision):
        levels = {name: level.float() for name, level in network.backbone(images.tensors).items()}
        seen = propose(network, images, levels)
    anchor_labels, matched = network.rpn.assign_targets_to_anchors(seen.anchors, targets)
    anchor_goals = network.rpn.box_coder.encode(matched, seen.anchors)
    objectness, rpn_boxes = network.rpn.compute_loss(seen.objectness, seen.deltas, anchor_labels, anchor_goals)
    with autocast(device, precision):
        sampled, _, labels, goals = heads.select_training_samples(seen.proposals, targets)
        features = heads.box_head(heads.box_roi_pool(levels, sampled, images.image_sizes))
    features = features.float()
    logits, deltas = heads.box_predictor(features)
    classifier, boxes = fastrcnn_loss(logits, deltas, labels, goals)
    found = {
        "loss_classifier": classifier,
        "loss_boxes": boxes,
        "loss_objectness": objectness,
        "loss_rpn_boxes": rpn_boxes,
    }
    for more in extra_losses:
        found |= more(features, torch.cat(labels), logits)
    return found
