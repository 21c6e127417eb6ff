"""Row sums of the Gram matrices of activations (Sastry and Oore 2020, arXiv:1912.12510)."""

from __future__ import annotations

import torch
from torch import Tensor
from torchvision.ops import roi_align

from farther.detectors.settings import Pooling

#: Number of boxes whose pooled maps are in memory at once.
BATCH_SIZE = 64

#: Activations are divided by the largest of their map, or by this where that is smaller.
SMALLEST = 1e-30


def gram_rows(maps: Tensor, powers: int) -> Tensor:
    """Means of the rows of the Gram matrices of each map, for powers p from 1 to P.

    For activations a_i(x) of channel i at cell x of n cells, they are sign(g) |g|^(1/p), where g =
    (1 / (C n)) Σ_j Σ_x a_i(x)^p a_j(x)^p. The paper sums; a mean differs by one factor per map and
    power, and its size does not depend on the number of cells. No C × C matrix is needed: the sum
    over j comes first.

    Args:
        maps: Shape (N, C, n).
        powers: P.

    Returns:
        Shape (N, P · C), float32, the values of one power side by side.
    """
    # In float64, because a p-th root enlarges rounding errors near 0; Apple's GPUs have no float64.
    activations = maps.cpu() if maps.device.type == "mps" else maps
    activations = activations.double()

    # Scaled, so that no power overflows.
    largest = activations.abs().amax((1, 2), keepdim=True).clamp(min=SMALLEST)
    scaled = activations / largest

    rows = []
    raised = torch.ones_like(scaled)
    for power in range(1, powers + 1):
        raised = raised * scaled
        means = (raised * raised.mean(1, keepdim=True)).mean(2)
        roots = means.sign() * means.abs() ** (1 / power)
        rows.append(roots * largest[:, :, 0] ** 2)
    return torch.cat(rows, dim=1).float().to(maps.device)


def box_gram_rows(level: Tensor, boxes: Tensor, powers: int, pooling: Pooling) -> Tensor:
    """`gram_rows` over boxes of a map: over the cells of each box that aligned ROIAlign gives.

    Args:
        level: Shape (C, h, w), float32.
        boxes: Shape (N, 4), corners in cells.
        powers: P.
        pooling: Settings of ROIAlign.

    Returns:
        Shape (N, P · C), float32.
    """
    rows = [level.new_zeros(0, powers * len(level))]
    for batch in boxes.split(BATCH_SIZE):
        pooled = roi_align(level[None], [batch], pooling.size, 1.0, pooling.sampling, aligned=True)
        rows.append(gram_rows(pooled.flatten(2), powers))
    return torch.cat(rows)
