"""Losses of detection transformers: those of the network's family, and one for training from scratch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, l1_loss
from torchvision.ops import box_iou, generalized_box_iou_loss
from transformers import PreTrainedModel
from transformers.image_processing_utils import BaseImageProcessor

from farther.detectors.networks.detection import autocast
from farther.errors import ParameterError
from farther.tools.training.samples import Sample

#: Number of tokens assigned to each object in `one_to_many_loss`.
TOKENS_PER_OBJECT = 6
#: Weights of score, distance and overlap as in RT-DETR's loss, and the exponent that reduces easy negatives.
SCORE_WEIGHT, DISTANCE_WEIGHT, OVERLAP_WEIGHT = 1.0, 5.0, 2.0
NEGATIVE_WEIGHT, FOCUS = 0.75, 2.0


@dataclass(frozen=True)
class Batch:
    """Images and objects in the network's format.

    Args:
        pixels: Shape (B, 3, H, W).
        mask: Shape (B, H, W): 1 inside the image, 0 in the padding.
        labels: Per image `class_labels` (N,) and `boxes` (N, 4): centre and size, as fractions of the image.
    """

    pixels: Tensor
    mask: Tensor
    labels: list[dict[str, Tensor]]


def make_batch(processor: BaseImageProcessor, samples: Sequence[Sample], device: torch.device) -> Batch:
    """Samples, preprocessed as for inference; images of several shapes are padded to one."""
    images = [np.ascontiguousarray(s.pixels) for s in samples]
    try:
        prepared = processor(images=images, input_data_format="channels_last", return_tensors="pt")
    except (ValueError, RuntimeError) as error:
        problem = f"the image processor cannot make one batch of these images: {str(error).splitlines()[0]}"
        raise ParameterError(f"{problem}. Let it resize to one size, or pad") from None
    pixels = prepared["pixel_values"].to(device)
    mask = prepared.get("pixel_mask")
    labels = [
        {"class_labels": torch.from_numpy(s.labels).to(device), "boxes": _fractions(s).to(device)} for s in samples
    ]
    return Batch(pixels, torch.ones_like(pixels[:, 0]) if mask is None else mask.to(device), labels)


def _fractions(sample: Sample) -> Tensor:
    height, width = sample.pixels.shape[:2]
    corners = torch.from_numpy(sample.boxes).float() / torch.tensor([width, height, width, height])
    low, high = corners[:, :2], corners[:, 2:]
    return torch.cat([(low + high) / 2, high - low], dim=1)


def losses(network: PreTrainedModel, batch: Batch, precision: str, one_to_many: float) -> dict[str, Tensor]:
    """Losses of a batch; "loss" is minimised, the others are its parts.

    Args:
        network: In training mode, prepared by `DetrRun`: its loss computes in float32.
    """
    with autocast(batch.pixels.device, precision):
        output = network(pixel_values=batch.pixels, pixel_mask=batch.mask, labels=batch.labels)
    # Terms of the other decoder layers, of proposals and of denoising have numbers in their names.
    found = {name: value for name, value in output.loss_dict.items() if name.startswith("loss") and name[-1].isalpha()}
    total = output.loss
    if one_to_many > 0:
        scores, boxes = output.get("enc_outputs_class"), output.get("enc_outputs_coord_logits")
        if scores is None or boxes is None:
            raise ParameterError(f"one_to_many: {network.config.model_type} has no proposals of an encoder to teach")
        found["loss_one_to_many"] = one_to_many_loss(scores.float(), boxes.float().sigmoid(), batch.labels)
        total = total + one_to_many * found["loss_one_to_many"]
    return {"loss": total, **found}


def one_to_many_loss(logits: Tensor, boxes: Tensor, labels: Sequence[dict[str, Tensor]]) -> Tensor:
    """Loss of the encoder's proposals with several tokens per object.

    DETR's losses match each object with one query. This avoids suppression, but gives little signal per step; an
    additional one-to-many matching speeds up the first epochs (H-DETR, arXiv:2207.13080; RT-DETRv3, arXiv:2409.08475).
    An object is assigned to the tokens with the highest √score · IoU, a token to its best object; the losses are those
    of RT-DETR (varifocal, L1, GIoU; arXiv:2304.08069).

    Args:
        logits: Shape (B, T, K), of T tokens.
        boxes: Shape (B, T, 4): centre and size, as fractions of the image.
    """
    score_loss = logits.new_zeros(())
    box_loss = logits.new_zeros(())
    assigned = 0
    for image_logits, image_boxes, image_labels in zip(logits, boxes, labels, strict=True):
        tokens, objects, overlaps = _assign(image_logits, image_boxes, image_labels)
        target = torch.zeros_like(image_logits)
        target[tokens, image_labels["class_labels"][objects]] = overlaps
        weight = torch.where(target > 0, target, NEGATIVE_WEIGHT * image_logits.detach().sigmoid() ** FOCUS)
        score_loss = score_loss + binary_cross_entropy_with_logits(image_logits, target, weight, reduction="sum")
        found, wanted = image_boxes[tokens], image_labels["boxes"][objects]
        distance = l1_loss(found, wanted, reduction="sum")
        overlap = generalized_box_iou_loss(_corners(found), _corners(wanted), reduction="sum")
        box_loss = box_loss + DISTANCE_WEIGHT * distance + OVERLAP_WEIGHT * overlap
        assigned += len(tokens)
    return (SCORE_WEIGHT * score_loss + box_loss) / max(1, assigned)


@torch.no_grad()
def _assign(logits: Tensor, boxes: Tensor, labels: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Assigned tokens, their objects, and the IoU of their boxes: shape (M,) each."""
    overlaps = box_iou(_corners(boxes), _corners(labels["boxes"]))
    fit = logits.sigmoid()[:, labels["class_labels"]].sqrt() * overlaps
    best = fit.topk(min(TOKENS_PER_OBJECT, len(fit)), dim=0).indices
    chosen = torch.zeros_like(fit).scatter(0, best, fit.gather(0, best))
    if chosen.shape[1] == 0:
        nothing = best.new_zeros(0)
        return nothing, nothing, chosen.new_zeros(0)
    value, objects = chosen.max(dim=1)
    tokens = torch.where(value > 0)[0]
    objects = objects[tokens]
    return tokens, objects, overlaps[tokens, objects]


def _corners(boxes: Tensor) -> Tensor:
    centre, half = boxes[..., :2], boxes[..., 2:] / 2
    return torch.cat([centre - half, centre + half], dim=-1)
