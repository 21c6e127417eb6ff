"""Boxes of the salient parts of a feature map, which differ from its background.

The method is the enhanced unknown localisation of FMap (Martinez-Seras et al., arXiv:2411.04586):
it uses no head that was trained for known classes. Its published code has several variants; this is
the one of its last settings, with three thresholds, except for the order of the boxes, which in the
code is that of distances to the classes' centres.
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
    """Boxes around the connected parts of a map above each threshold, and their contrasts.

    The saliency of a cell is the mean over channels of |activation − the channel's mean over the
    map|. A threshold is Otsu's of the cells above the one before. Cells that touch at a corner are
    connected. A part's contrast is 1 − (mean saliency up to the first threshold) / (mean saliency
    of the part).

    Args:
        level: Activations, shape (C, H, W).
        thresholds: Number of thresholds.

    Returns:
        Corners in cells, shape (P, 4), and contrasts, 0 to 1, shape (P,).
    """
    saliency = _saliency(level)
    boxes: list[tuple[int, ...]] = []
    contrasts: list[float] = []
    threshold = -np.inf
    background: float | None = None
    for _ in range(thresholds):
        above = saliency[saliency > threshold]
        if len(above) < 2 or above.min() == above.max():
            break
        threshold = otsu(above)
        if background is None:
            background = float(saliency[saliency <= threshold].mean())
        parts, count = ndimage.label(saliency > threshold, structure=np.ones((3, 3)))
        means = np.asarray(ndimage.mean(saliency, parts, np.arange(1, count + 1)))
        for rows, columns in ndimage.find_objects(parts):
            boxes.append((columns.start, rows.start, columns.stop, rows.stop))
        contrasts += (1 - background / means).tolist()

    corners = torch.tensor(boxes, device=level.device).float().reshape(-1, 4)
    return corners, torch.tensor(contrasts, device=level.device).float()


def _saliency(level: Tensor) -> np.ndarray:
    """Saliency of each cell of a map (C, H, W): ndarray of shape (H, W), float64."""
    values = level.float()
    deviations = (values - values.mean(dim=(1, 2), keepdim=True)).abs()
    return deviations.mean(dim=0).cpu().numpy().astype(np.float64)


def otsu(values: np.ndarray) -> float:
    """The threshold with the largest variance between the values below and above it (Otsu 1979).

    Args:
        values: Not all equal, ndarray of shape (N,).

    Returns:
        The upper edge of the last bin of the lower group, in a histogram of `BINS` equal bins.
    """
    counts, edges = np.histogram(values, BINS)
    centres = (edges[:-1] + edges[1:]) / 2
    lower_count = np.cumsum(counts)[:-1]
    upper_count = len(values) - lower_count
    lower_sum = np.cumsum(counts * centres)[:-1]
    upper_sum = (counts @ centres) - lower_sum
    difference_of_means = lower_sum / lower_count - upper_sum / upper_count
    variance = lower_count * upper_count * difference_of_means**2
    return float(edges[1:-1][np.argmax(variance)])


def salient_pixels(
    level: Tensor, size: Sequence[int], selection: MapSelection
) -> tuple[Tensor, Tensor]:
    """The boxes of `salient_boxes` in pixels, shape (P, 4), and their contrasts, shape (P,).

    Args:
        level: Activations, shape (C, H, W).
        size: Height and width in pixels of the area that the map covers, padding included.
        selection: Has the number of thresholds.
    """
    cells, contrasts = salient_boxes(level, selection.thresholds)
    height, width = size
    pixels_x = width / level.shape[2]
    pixels_y = height / level.shape[1]
    return cells * cells.new_tensor([pixels_x, pixels_y, pixels_x, pixels_y]), contrasts


def nearest(boxes: Tensor, candidates: Tensor) -> Tensor:
    """Number of the candidate that overlaps each of P boxes most (IoU), shape (P,).

    A box takes this candidate's logits.

    Args:
        boxes: Shape (P, 4).
        candidates: Shape (A, 4).
    """
    return box_iou(boxes, candidates).argmax(dim=1)
