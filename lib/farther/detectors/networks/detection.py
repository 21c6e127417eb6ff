"""Steps of inference that all detection networks share."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torchvision.models.detection.image_list import ImageList
from torchvision.models.detection.transform import GeneralizedRCNNTransform

from farther.detectors.networks.pooling import latent_means, pixels_to_cells, published_cells
from farther.detectors.settings import Pooling, to_numpy
from farther.images.device import float32_products


@dataclass
class ImageDetections:
    """N detections of one image.

    Args:
        boxes: Shape (N, 4), in pixels of the resized image.
        scores: Shape (N,), the detector's.
        labels: Shape (N,), columns of the logits.
        rows: Shape (N,), the proposal, anchor or query that each detection comes from.
    """

    boxes: Tensor
    scores: Tensor
    labels: Tensor
    rows: Tensor


def autocast(device: torch.device, precision: str) -> AbstractContextManager:
    """A context in which layers compute in a precision.

    Args:
        device: The network's.
        precision: "float32", "tf32", "bfloat16" or "float16".
    """
    if precision in ("float32", "tf32"):
        return float32_products(tf32=precision == "tf32")
    return torch.autocast(device.type, getattr(torch, precision))


def as_floats(image: np.ndarray, device: torch.device) -> Tensor:
    """Converts an image to floats between 0 and 1 on the device.

    Args:
        image: uint8, shape (H, W, 3).

    Returns:
        Shape (3, H, W).
    """
    return torch.from_numpy(image).to(device).permute(2, 0, 1).float().div_(255)


def network_input(
    transform: GeneralizedRCNNTransform,
    images: Sequence[np.ndarray] | Sequence[Tensor],
    device: torch.device,
) -> ImageList:
    """Normalises, resizes and batches images for a network of torchvision.

    The result equals `transform` of `as_floats`, bit for bit. Each image is resized before the
    next one is normalised, and bytes become floats in place: memory holds 12 bytes per pixel of
    one image, instead of 12 of all images and 24 more of one.

    Args:
        transform: The network's.
        images: uint8, shape (H, W, 3); or the results of `as_floats`.
        device: The network's.
    """
    resized = [_resized(transform, image, device) for image in images]
    sizes = [(image.shape[1], image.shape[2]) for image in resized]
    batch = transform.batch_images(resized, size_divisible=transform.size_divisible)
    return ImageList(batch, sizes)


def _resized(
    transform: GeneralizedRCNNTransform, image: np.ndarray | Tensor, device: torch.device
) -> Tensor:
    """One normalised and resized image, shape (3, h, w); a tensor that was given stays as it is."""
    if isinstance(image, Tensor):
        pixels = transform.normalize(image)
    elif type(transform) is GeneralizedRCNNTransform:
        pixels = as_floats(image, device)
        mean = pixels.new_tensor(transform.image_mean)[:, None, None]
        std = pixels.new_tensor(transform.image_std)[:, None, None]
        pixels.sub_(mean).div_(std)
    else:
        pixels = transform.normalize(as_floats(image, device))
    resized, _ = transform.resize(pixels)
    return resized


def pyramid_latent(
    levels: Sequence[Tensor],
    first_stride: int,
    input_boxes: Sequence[Tensor],
    image_boxes: Sequence[Tensor],
    widths: Sequence[int],
    pooling: Pooling,
) -> Tensor:
    """The column `latent` of the detections of B images.

    Args:
        levels: Activations of each pyramid level, shape (B, C, H, W).
        first_stride: Pixels between two cells of the first level; each further level has twice as
            many.
        input_boxes: Boxes of each image in pixels of the network's input.
        image_boxes: The same boxes in pixels of the image as given.
        widths: Widths of the images as given.
        pooling: Settings of ROIAlign.
    """
    means = []
    for number, boxes in enumerate(input_boxes):
        image_levels = [level[number] for level in levels]
        if pooling.published_rois:
            cells = published_cells(image_boxes[number], image_levels, widths[number])
        else:
            cells = pixels_to_cells(boxes, image_levels, first_stride)
        means.append(latent_means(image_levels, cells, first_stride, pooling))
    return torch.cat(means)


def detection_columns(
    detections: Sequence[ImageDetections], boxes: Sequence[Tensor], image_ids: Sequence[str]
) -> dict[str, np.ndarray]:
    """The columns of a regions table that every detector has.

    Args:
        detections: Detections of each image.
        boxes: Their boxes in pixels of the image as given.
        image_ids: Names of the images.
    """
    counts = [len(image.rows) for image in detections]
    scores = torch.cat([image.scores for image in detections])
    labels = torch.cat([image.labels for image in detections])
    return {
        "image_id": np.repeat(np.array(image_ids, dtype=object), counts),
        "region_id": np.arange(sum(counts)),
        "box": to_numpy(torch.cat(list(boxes))),
        "score": to_numpy(scores),
        "label": to_numpy(labels).astype(np.int16),
    }
