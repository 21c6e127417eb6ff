"""ROIAlign over feature pyramids."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor
from torchvision.ops import MultiScaleRoIAlign

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
    named = {str(number): level.float() for number, level in enumerate(levels)}
    pool = _pyramid_pool(len(levels), first_stride, size, sampling)
    return pool(named, boxes, [(_SIDE, _SIDE)] * len(boxes)).mean(dim=(2, 3))
