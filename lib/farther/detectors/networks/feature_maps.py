"""Boxes from one feature map of a network: parts of it that differ from its background.

The method is the enhanced unknown localisation of FMap (Martinez-Seras et al., arXiv:2411.04586):
no head, trained for known classes, has a say in it. Its published code has several variants; this
is the one of its last settings, with three thresholds, but for the order of the boxes, which there
is that of distances to the classes' centres.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from scipy import ndimage
from torch import Tensor
from torchvision.ops import box_iou

from farther.detectors.settings import MapSelection

#: Bins of the histogram that a threshold is chosen in.
BINS = 256


def salient_boxes(level: Tensor, thresholds: int) -> tuple[Tensor, Tensor]:
    """Boxes around the connected parts of a map that are above each threshold, and how far they stand out.

    The saliency of a cell is the mean over channels of |activation − the channel's mean over the
    map|. A threshold is Otsu's of the cells above the one before. Cells that touch at a corner are
    connected. A part's contrast is 1 − (mean saliency up to the first threshold) / (mean saliency
    of the part).

    Args:
        level: Activations, shape (C, H, W).
        thresholds: Their number.

    Returns:
        Corners in cells, shape (P, 4), and contrasts, 0 to 1, shape (P,).
    """
    values = level.float()
    saliency = (
        (values - values.mean(dim=(1, 2), keepdim=True))
        .abs()
        .mean(dim=0)
        .cpu()
        .numpy()
        .astype(np.float64)
    )
    boxes, contrasts, above = [], [], -np.inf
    background: float | None = None
    for _ in range(thresholds):
        left = saliency[saliency > above]
        if len(left) < 2 or left.min() == left.max():
            break
        above = otsu(left)
        if background is None:
            background = float(saliency[saliency <= above].mean())
        parts, count = ndimage.label(saliency > above, structure=np.ones((3, 3)))
        means = np.asarray(ndimage.mean(saliency, parts, np.arange(1, count + 1)))
        boxes += [(x.start, y.start, x.stop, y.stop) for y, x in ndimage.find_objects(parts)]
        contrasts += (1 - background / means).tolist()
    device = level.device
    return torch.tensor(boxes, device=device).float().reshape(-1, 4), torch.tensor(
        contrasts, device=device
    ).float()


def otsu(values: np.ndarray) -> float:
    """The threshold that separates values into two groups with the largest variance between them (Otsu 1979).

    Args:
        values: Not all equal, ndarray of shape (N,).

    Returns:
        The upper edge of the last bin of the lower group, in a histogram of `BINS` equal bins.
    """
    counts, edges = np.histogram(values, BINS)
    centres = (edges[:-1] + edges[1:]) / 2
    lower = np.cumsum(counts)[:-1]
    of_lower, upper = np.cumsum(counts * centres)[:-1], len(values) - lower
    between = lower * upper * (of_lower / lower - ((counts @ centres) - of_lower) / upper) ** 2
    return float(edges[1:-1][np.argmax(between)])


def salient_pixels(
    level: Tensor, size: Sequence[int], selection: MapSelection
) -> tuple[Tensor, Tensor]:
    """The boxes of `salient_boxes` in pixels, corners of shape (P, 4), and their contrasts, shape (P,).

    Args:
        level: Activations, shape (C, H, W).
        size: Height and width in pixels of what the map covers, padding included.
        selection: Has the number of thresholds.
    """
    cells, contrasts = salient_boxes(level, selection.thresholds)
    across, down = size[1] / level.shape[2], size[0] / level.shape[1]
    return cells * cells.new_tensor([across, down, across, down]), contrasts


def nearest(boxes: Tensor, candidates: Tensor) -> Tensor:
    """For each of P boxes the candidate that overlaps it most (IoU), whose logits it takes; shape (P,).

    Args:
        boxes: Shape (P, 4).
        candidates: Shape (A, 4).
    """
    return box_iou(boxes, candidates).argmax(dim=1)
