"""Parts of inference that all networks share."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torchvision.models.detection.image_list import ImageList
from torchvision.models.detection.transform import GeneralizedRCNNTransform, resize_boxes

from farther.detectors.networks.pooling import latent_means, pixels_to_cells, published_cells
from farther.detectors.settings import StoredColumns, to_numpy


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


def autocast(device: torch.device, precision: str) -> AbstractContextManager:
    """A context in which layers compute in `precision` ("float32", "bfloat16", "float16")."""
    if precision == "float32":
        return nullcontext()
    return torch.autocast(device.type, getattr(torch, precision))


def as_floats(image: np.ndarray, device: torch.device) -> Tensor:
    """A uint8 image of shape (H, W, 3) as a float tensor of shape (3, H, W) between 0 and 1, on the device."""
    return torch.from_numpy(image).to(device).permute(2, 0, 1).float().div_(255)


def network_input(
    transform: GeneralizedRCNNTransform, images: Sequence[np.ndarray] | Sequence[Tensor], device: torch.device
) -> ImageList:
    """Images as a network of torchvision takes them: what `transform` makes of `as_floats`, bit for bit.

    Each is resized before the next one is normalised, and bytes become floats in place: memory holds 12 bytes per pixel
    of one image, instead of 12 of all and 24 more of one.

    Args:
        images: uint8, of shape (H, W, 3); or what `as_floats` makes of them.
    """

    def resized(image: np.ndarray | Tensor) -> Tensor:
        pixels = image if isinstance(image, Tensor) else as_floats(image, device)
        if pixels is image or type(transform) is not GeneralizedRCNNTransform:
            pixels = transform.normalize(pixels)
        else:
            mean, std = (pixels.new_tensor(of)[:, None, None] for of in (transform.image_mean, transform.image_std))
            pixels.sub_(mean).div_(std)
        made: Tensor = transform.resize(pixels)[0]
        return made

    small = [resized(image) for image in images]
    sizes = [(one.shape[1], one.shape[2]) for one in small]
    return ImageList(transform.batch_images(small, size_divisible=transform.size_divisible), sizes)


#: Height and width of an image as the network takes it, and as given.
Frame = tuple[tuple[int, int], tuple[int, ...]]


def pyramid_latent(
    levels: Sequence[Tensor],
    first_stride: int,
    found: Sequence[Detections],
    frames: Sequence[Frame],
    stored: StoredColumns,
) -> Tensor:
    """The column `latent` of the detections of B images, whose activations are (B, C, H, W) for each pyramid level."""
    means = []
    for number, (one, (seen, given)) in enumerate(zip(found, frames, strict=True)):
        of_image = [level[number] for level in levels]
        if stored.pooling.published_rois:
            cells = published_cells(resize_boxes(one.boxes, seen, given), of_image, given[1])
        else:
            cells = pixels_to_cells(one.boxes, of_image, first_stride)
        means.append(latent_means(of_image, cells, first_stride, stored.pooling))
    return torch.cat(means)


def columns_of(found: Sequence[Detections], image_ids: Sequence[str], frames: Sequence[Frame]) -> dict[str, np.ndarray]:
    """The columns that any detector has, of each image's detections; boxes are scaled to the images as given."""
    per_image = zip(found, frames, strict=True)
    return {
        "image_id": np.repeat(np.array(image_ids, dtype=object), [len(one.rows) for one in found]),
        "region_id": np.arange(sum(len(one.rows) for one in found)),
        "box": to_numpy(torch.cat([resize_boxes(one.boxes, *frame) for one, frame in per_image])),
        "score": to_numpy(torch.cat([one.scores for one in found])),
        "label": to_numpy(torch.cat([one.labels for one in found])).astype(np.int16),
    }
