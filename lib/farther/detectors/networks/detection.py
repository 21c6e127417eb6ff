"""Parts of inference that all networks share."""

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
    """A context in which layers compute in `precision` ("float32", "tf32", "bfloat16", "float16")."""
    if precision in ("float32", "tf32"):
        return float32_products(tf32=precision == "tf32")
    return torch.autocast(device.type, getattr(torch, precision))


def as_floats(image: np.ndarray, device: torch.device) -> Tensor:
    """A uint8 image of shape (H, W, 3) as a float tensor of shape (3, H, W) between 0 and 1, on the device."""
    return torch.from_numpy(image).to(device).permute(2, 0, 1).float().div_(255)


def network_input(
    transform: GeneralizedRCNNTransform,
    images: Sequence[np.ndarray] | Sequence[Tensor],
    device: torch.device,
) -> ImageList:
    """Images as a network of torchvision takes them: what `transform` makes of `as_floats`, bit for bit.

    Each is resized before the next one is normalised, and bytes become floats in place: memory
    holds 12 bytes per pixel of one image, instead of 12 of all and 24 more of one.

    Args:
        images: uint8, of shape (H, W, 3); or what `as_floats` makes of them.
    """

    def resized(image: np.ndarray | Tensor) -> Tensor:
        pixels = image if isinstance(image, Tensor) else as_floats(image, device)
        if pixels is image or type(transform) is not GeneralizedRCNNTransform:
            pixels = transform.normalize(pixels)
        else:
            mean, std = (
                pixels.new_tensor(of)[:, None, None]
                for of in (transform.image_mean, transform.image_std)
            )
            pixels.sub_(mean).div_(std)
        made: Tensor = transform.resize(pixels)[0]
        return made

    small = [resized(image) for image in images]
    sizes = [(one.shape[1], one.shape[2]) for one in small]
    return ImageList(transform.batch_images(small, size_divisible=transform.size_divisible), sizes)


def pyramid_latent(
    levels: Sequence[Tensor],
    first_stride: int,
    shown: Sequence[Tensor],
    given: Sequence[Tensor],
    widths: Sequence[int],
    pooling: Pooling,
) -> Tensor:
    """The column `latent` of the detections of B images, whose activations are (B, C, H, W) for each pyramid level.

    Args:
        first_stride: Pixels between two cells of the first level; each further level has twice as
            many.
        shown: Boxes of each image in pixels of the network's input.
        given: The same in pixels of the image as given.
        widths: Of the images as given.
    """
    means = []
    for number, boxes in enumerate(shown):
        of_image = [level[number] for level in levels]
        if pooling.published_rois:
            cells = published_cells(given[number], of_image, widths[number])
        else:
            cells = pixels_to_cells(boxes, of_image, first_stride)
        means.append(latent_means(of_image, cells, first_stride, pooling))
    return torch.cat(means)


def columns_of(
    found: Sequence[ImageDetections], given: Sequence[Tensor], image_ids: Sequence[str]
) -> dict[str, np.ndarray]:
    """The columns that any detector has, of each image's detections, whose boxes in the image as given are `given`."""
    return {
        "image_id": np.repeat(np.array(image_ids, dtype=object), [len(one.rows) for one in found]),
        "region_id": np.arange(sum(len(one.rows) for one in found)),
        "box": to_numpy(torch.cat(list(given))),
        "score": to_numpy(torch.cat([one.scores for one in found])),
        "label": to_numpy(torch.cat([one.labels for one in found])).astype(np.int16),
    }
