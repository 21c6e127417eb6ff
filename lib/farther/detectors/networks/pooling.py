"""ROIAlign of activations over boxes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torchvision.ops import MultiScaleRoIAlign, roi_align
from torchvision.ops.poolers import LevelMapper

from farther.detectors.settings import Pooling

#: Maps with more cells are pooled sample by sample: a product with all cells costs more there.
_FEW_CELLS = 4096

#: Side of an image that all strides divide.
_SIDE = 1024


def set_strides(pool: MultiScaleRoIAlign, strides: Sequence[int]) -> MultiScaleRoIAlign:
    """Sets the strides of the levels of a pool.

    By default, torchvision guesses them from the first batch, by rounding: a long narrow image that
    comes first stops the run, or silently misplaces the boxes of all images after it.

    Args:
        pool: It has not pooled a batch yet.
        strides: Pixels between two cells of each level that the pyramid has, the finest first. A
            pool may name more levels than there are: torchvision's names four, of which a pyramid
            of MobileNetV3 has two.
    """
    levels = {}
    for name, stride in zip(pool.featmap_names, strides, strict=False):
        side = _SIDE // stride
        levels[name] = torch.zeros(1, 1, side, side)
    pool(levels, [torch.zeros(1, 4)], [(_SIDE, _SIDE)])
    return pool


def pixels_to_cells(boxes: Tensor, levels: list[Tensor], first_stride: int) -> list[Tensor]:
    """Converts boxes (N, 4) from pixels of the network's input to cells of each level.

    Each level has half as many cells as the level before.
    """
    return [boxes / (first_stride << number) for number in range(len(levels))]


def published_cells(boxes: Tensor, levels: list[Tensor], width: int) -> list[Tensor]:
    """Converts boxes (N, 4) from pixels of an image to cells of each level as FMIYC's code does.

    Both directions are scaled by the width's factor, and padding of the network's input counts as
    image.
    """
    return [boxes * (level.shape[-1] / width) for level in levels]


def latent_means(
    levels: list[Tensor], cells: list[Tensor], first_stride: int, pooling: Pooling
) -> Tensor:
    """Channel means of an image's activations over boxes.

    ROIAlign, then the mean of its grid (FMIYC, Appendix F.2.4). ROIAlign is aligned: the value of a
    cell is at its centre. The first ROIAlign placed boxes half a cell off, which is 16 pixels at
    stride 32.

    Args:
        levels: Activations, (C, h, w) for each of L pyramid levels.
        cells: The N boxes in cells of each level, (N, 4) each.
        first_stride: Pixels between two cells of the first level; each further level has twice as
            many.
        pooling: Settings of ROIAlign.

    Returns:
        Shape (N, C), or (N, L · C) with `all_levels`; float32.
    """
    levels = [level.float() for level in levels]
    if pooling.all_levels or len(levels) == 1:
        means_per_level = []
        for level, boxes in zip(levels, cells, strict=True):
            means_per_level.append(box_means(level, boxes, pooling))
        return torch.cat(means_per_level, dim=1)

    fitting = fitting_levels(cells[0] * first_stride, first_stride, len(levels))
    means = levels[0].new_zeros(len(fitting), len(levels[0]))
    for number, (level, boxes) in enumerate(zip(levels, cells, strict=True)):
        rows = fitting == number
        means[rows] = box_means(level, boxes[rows], pooling)
    return means


def fitting_levels(boxes: Tensor, first_stride: int, count: int) -> Tensor:
    """Number of the level that fits each box, shape (N,): Lin et al. 2017, Equation 1.

    Args:
        boxes: Shape (N, 4), pixels of the network's input.
        first_stride: Pixels between two cells of the first level.
        count: Number of levels.
    """
    finest = first_stride.bit_length() - 1
    return LevelMapper(finest, finest + count - 1)([boxes])


def box_means(level: Tensor, boxes: Tensor, pooling: Pooling) -> Tensor:
    """Channel means of one map over boxes: aligned ROIAlign, then the mean over its grid.

    Interpolation weighs rows and columns independently, and a mean of samples is one weight per
    cell: so on a small map all boxes are one matrix product, which is faster on a CPU.

    Args:
        level: Shape (C, h, w), float32.
        boxes: Shape (N, 4), corners in cells.
        pooling: Settings of ROIAlign.

    Returns:
        Shape (N, C).
    """
    channels, height, width = level.shape
    size = pooling.size
    sampling = pooling.sampling
    if level.is_cuda or sampling < 1 or height * width > _FEW_CELLS:
        grids = roi_align(level[None], [boxes], size, 1.0, sampling, aligned=True)
        return grids.mean(dim=(2, 3))

    left, top, right, bottom = (boxes - 0.5).unbind(1)
    columns = _weights(left, (right - left).clamp(min=0), width, size * sampling)
    rows = _weights(top, (bottom - top).clamp(min=0), height, size * sampling)
    cells = (rows[:, :, None] * columns[:, None, :]).flatten(1)
    return cells @ level.reshape(channels, -1).T


def _weights(start: Tensor, length: Tensor, cells: int, samples: int) -> Tensor:
    """Weight of each of a row's cells in the mean of samples along a length, shape (N, cells).

    As in roi_align, samples up to one cell outside take the outermost cell's value, those
    farther out count as 0.
    """
    steps = (torch.arange(samples, device=start.device, dtype=start.dtype) + 0.5) / samples
    at = start[:, None] + length[:, None] * steps
    counts = ((at >= -1) & (at <= cells)).to(start.dtype) / samples
    at = at.clamp(0, cells - 1)
    below = at.floor()
    above_share = (at - below) * counts
    below_index = below.long()
    weights = start.new_zeros(len(start), cells)
    weights.scatter_add_(1, below_index, counts - above_share)
    weights.scatter_add_(1, (below_index + 1).clamp(max=cells - 1), above_share)
    return weights
