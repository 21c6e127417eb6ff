"""Inference with a Faster R-CNN that keeps, for each detection, the row of its own proposal."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import softmax
from torchvision.models.detection import FasterRCNN
from torchvision.models.detection.transform import resize_boxes
from torchvision.ops import MultiScaleRoIAlign

from farther.detectors.networks.passes import propose, select_detections
from farther.tables import Header, Regions


@dataclass(frozen=True)
class StoredColumns:
    """What is kept of each detection besides its box, and how.

    Args:
        latent_size, latent_sampling: Grid that `latent` is pooled to, and samples along one side of its cells.
        dtype: Of `features` and `latent`.
    """

    latent_size: int = 9
    latent_sampling: int = 2
    dtype: str = "float32"


def autocast(device: torch.device, precision: str) -> AbstractContextManager:
    """A context in which layers compute in `precision` ("float32", "bfloat16", "float16")."""
    if precision == "float32":
        return nullcontext()
    return torch.autocast(device.type, getattr(torch, precision))


def to_batch(images: Sequence[np.ndarray], device: torch.device) -> list[Tensor]:
    """uint8 images of shape (H, W, 3) as float tensors of shape (3, H, W) between 0 and 1, on the device."""
    return [torch.from_numpy(image).to(device).permute(2, 0, 1).float().div_(255) for image in images]


@torch.inference_mode()
def detect_regions(
    network: FasterRCNN,
    header: Header,
    images: Sequence[np.ndarray],
    image_ids: Sequence[str],
    precision: str = "float32",
    stored: StoredColumns | None = None,
) -> Regions:
    """Detects objects in one batch of images.

    Args:
        network: In evaluation mode; its thresholds decide what is kept.
        images: uint8 arrays of shape (H, W, 3).
        stored: The columns `features` and `latent`; None keeps neither.

    Returns:
        The rows image by image, best score first; `region_id` counts from 0. Boxes in pixels of the images as given.
    """
    device = next(network.parameters()).device
    heads = network.roi_heads
    batch, _ = network.transform(to_batch(images, device))
    with autocast(device, precision):
        levels = {name: level.float() for name, level in network.backbone(batch.tensors).items()}
        seen = propose(network, batch, levels)
        pooled = heads.box_roi_pool(levels, seen.proposals, batch.image_sizes)
        features = heads.box_head(pooled)
    features = features.float()
    logits, deltas = heads.box_predictor(features)
    boxes = heads.box_coder.decode(deltas, seen.proposals)
    counts = [len(p) for p in seen.proposals]
    found = [
        select_detections(network, image_boxes, image_scores, size)
        for image_boxes, image_scores, size in zip(
            boxes.split(counts), softmax(logits, -1).split(counts), batch.image_sizes, strict=True
        )
    ]
    starts = np.cumsum([0, *counts[:-1]])
    rows = torch.cat([one.rows + int(start) for one, start in zip(found, starts, strict=True)])
    originals = [image.shape[:2] for image in images]
    columns = {
        "image_id": np.repeat(np.array(image_ids, dtype=object), [len(one.rows) for one in found]),
        "region_id": np.arange(len(rows)),
        "box": _numpy(
            torch.cat(
                [
                    resize_boxes(one.boxes, size, original)
                    for one, size, original in zip(found, batch.image_sizes, originals, strict=True)
                ]
            )
        ),
        "score": _numpy(torch.cat([one.scores for one in found])),
        "label": _numpy(torch.cat([one.labels for one in found])).astype(np.int16),
        "logits": _numpy(logits[rows]),
    }
    if stored is not None:
        latent = pool_latent(seen.shared, [one.boxes for one in found], batch.image_sizes, stored)
        columns["features"] = _numpy(features[rows]).astype(stored.dtype)
        columns["latent"] = _numpy(latent).astype(stored.dtype)
    return Regions(header=header, **columns)


def pool_latent(
    shared: list[Tensor], boxes: list[Tensor], image_sizes: list[tuple[int, int]], stored: StoredColumns
) -> Tensor:
    """Channel means of activations over each box (FMIYC, Appendix F.2.4: ROIAlign, then the mean over the grid).

    Args:
        shared: The RPN's shared activations, one (B, C, H, W) a pyramid level.
        boxes: Per image (N, 4), pixels of the resized image.
        image_sizes: Height and width of the resized images.

    Returns:
        Shape (all N together, C).
    """
    names = [str(number) for number in range(len(shared))]
    pool = MultiScaleRoIAlign(names, stored.latent_size, stored.latent_sampling)
    levels = {name: level.float() for name, level in zip(names, shared, strict=True)}
    return pool(levels, boxes, image_sizes).mean(dim=(2, 3))


def _numpy(tensor: Tensor) -> np.ndarray:
    return tensor.float().cpu().numpy() if tensor.is_floating_point() else tensor.cpu().numpy()
