"""ROIAlign over feature pyramids."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor
from torchvision.ops import MultiScaleRoIAlign, roi_align

#: Maps with more cells are pooled sample by sample: a product with all cells costs more there.
_FEW_CELLS = 4096

#: Side of an image that all strides divide.
_SIDE = 1024


def fix_scales(pool: MultiScaleRoIAlign, first_stride: int) -> MultiScaleRoIAlign:
    """Tells a pool the strides of its levels.

    Left alone, torchvision guesses them from the first batch that it sees, by rounding: a long narrow image that comes
    first stops the run, or silently misplaces the boxes of all that follow.

    Args:
        pool: It has seen no batch yet.
        first_stride: Of the finest level; each further level has twice as many pixels between two cells.
    """
    sides = [_SIDE // (first_stride << level) for level in range(len(pool.featmap_names))]
    levels = {name: torch.zeros(1, 1, side, side) for name, side in zip(pool.featmap_names, sides, strict=True)}
    pool(levels, [torch.zeros(1, 4)], [(_SIDE, _SIDE)])
    return pool


@cache
def _pyramid_pool(levels: int, first_stride: int, size: int, sampling: int) -> MultiScaleRoIAlign:
    return fix_scales(MultiScaleRoIAlign([str(n) for n in range(levels)], size, sampling), first_stride)


def channel_means(levels: list[Tensor], first_stride: int, boxes: list[Tensor], size: int, sampling: int) -> Tensor:
    """Channel means of activations over boxes (FMIYC, Appendix F.2.4: ROIAlign, then the mean over its grid).

    Args:
        levels: Activations, (B, C, H, W) a pyramid level; each box is pooled from the level that fits its size.
        first_stride: Of the first level, in pixels; each further level has twice as many.
        boxes: For each of the B images (N, 4), in pixels.
        size: Cells along one side of the grid.
        sampling: Samples along one side of a cell; 0 takes as many as fit.

    Returns:
        Shape (all N together, C), float32.
    """
    if len(levels) == 1:
        images = zip(levels[0].float(), boxes, strict=True)
        return torch.cat([box_means(level, of_image / first_stride, size, sampling) for level, of_image in images])
    named = {str(number): level.float() for number, level in enumerate(levels)}
    pool = _pyramid_pool(len(levels), first_stride, size, sampling)
    return pool(named, boxes, [(_SIDE, _SIDE)] * len(boxes)).mean(dim=(2, 3))


def box_means(level: Tensor, boxes: Tensor, size: int, sampling: int, *, aligned: bool = False) -> Tensor:
    """Channel means of one map over boxes: `torchvision.ops.roi_align`, then the mean over its grid.

    Interpolation weighs rows and columns apart, and a mean of samples is one weight a cell: so on a small map all boxes
    are one matrix product.

    Args:
        level: Shape (C, h, w), float32.
        boxes: Shape (N, 4), corners in cells.
        size: Cells along one side of the grid.
        sampling: Samples along one side of a cell; 0 takes as many as fit.
        aligned: A cell's value is that at its centre. Else that at its corner, and boxes are at least a cell wide.

    Returns:
        Shape (N, C).
    """
    channels, height, width = level.shape
    if not sampling or height * width > _FEW_CELLS:
        return roi_align(level[None], [boxes], size, 1.0, sampling, aligned=aligned).mean(dim=(2, 3))
    shift, least = (0.5, 0) if aligned else (0, 1)
    left, top, right, bottom = (boxes - shift).unbind(1)
    columns = _weights(left, (right - left).clamp(min=least), width, size * sampling)
    rows = _weights(top, (bottom - top).clamp(min=least), height, size * sampling)
    cells = (rows[:, :, None] * columns[:, None, :]).flatten(1)
    return cells @ level.reshape(channels, -1).T


def _weights(start: Tensor, length: Tensor, cells: int, samples: int) -> Tensor:
    """Weight of each of a row's cells in the mean of samples along a length, shape (N, cells).

    As roi_align has it: samples up to one cell outside take the outermost cell's value, those farther out count as 0.
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
