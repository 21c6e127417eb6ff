"""Activations without their rank-1 part (Song et al. 2022, arXiv:2209.08590)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from farther.detectors.networks.faster_rcnn import BOX_HEAD
from farther.detectors.networks.replay import Answer, Dropout, Replay
from farther.detectors.networks.taps import find_module
from farther.errors import ParameterError

#: The module whose output are the maps of the boxes of a Faster R-CNN, which its box head takes.
BOX_MAPS = "roi_heads.box_roi_pool"


def again_without(replay: Replay, network: nn.Module, layer: str, image_ids: Sequence[str]) -> Answer:
    """The output for a batch's rows when the maps that a module gives lack their rank-1 part.

    Raises:
        ParameterError: the network has no such module, or its output is not a map per image or per box.
    """
    module = find_module(network, layer, "layers")
    if layer == BOX_MAPS:  # only the box head runs again: dropout with rate 0 in it changes nothing
        with _changed(network.get_submodule(BOX_HEAD[0]), layer, given=True):
            return replay.again(dropout=Dropout(0.0, 0, 0, image_ids, (BOX_HEAD[0],)))
    with _changed(module, layer):
        return replay.again(replay.images)


@contextmanager
def _changed(module: nn.Module, layer: str, *, given: bool = False) -> Iterator[None]:
    """Removes the rank-1 part of a module's output, or of what is given to it, while a block runs."""

    def remove(found: Any) -> Tensor:
        if not isinstance(found, Tensor) or found.ndim != 4:
            shape = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
            problem = f"the output of {layer!r} is {shape}, not (images, channels, rows, columns)"
            raise ParameterError(f"parameter 'layers': {problem}; name another module")
        return without_rank_one(found)

    if given:
        hook = module.register_forward_pre_hook(lambda _module, inputs: (remove(inputs[0]), *inputs[1:]))
    else:
        hook = module.register_forward_hook(lambda _module, _given, output: remove(output))
    try:
        yield
    finally:
        hook.remove()


def without_rank_one(maps: Tensor) -> Tensor:
    """Maps minus the part of their largest singular value: X − s₁ u₁ v₁ᵀ for each map X of shape (C, h · w).

    v₁ is the first eigenvector of Xᵀ X, or u₁ that of X Xᵀ, whichever is the smaller matrix; computed in float64.

    Args:
        maps: Shape (N, C, h, w).

    Returns:
        Shape (N, C, h, w), of the same type.
    """
    on_cpu = maps.device.type == "mps"  # which has no float64
    flat = (maps.cpu() if on_cpu else maps).flatten(2).double()
    rows = flat if flat.shape[1] > flat.shape[2] else flat.transpose(1, 2)
    first = torch.linalg.eigh(rows.transpose(1, 2) @ rows).eigenvectors[:, :, -1:]
    rest = rows - (rows @ first) @ first.transpose(1, 2)
    rest = rest if flat.shape[1] > flat.shape[2] else rest.transpose(1, 2)
    return rest.reshape(maps.shape).to(maps.device, maps.dtype)
