"""Logits without the rank-1 component of inner activations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from farther.detectors.base import Detector, recomputable
from farther.detectors.networks.faster_rcnn import BOX_HEAD
from farther.detectors.networks.replay import Dropout, Replay, RowOutputs
from farther.detectors.networks.taps import find_module
from farther.detectors.passes.base import (
    KEYS,
    SHARED,
    Pass,
    check_replay,
    network_of,
    register_pass,
)
from farther.detectors.settings import to_numpy
from farther.errors import ParameterError
from farther.naming.registry import STRICT
from farther.tables import Regions

#: Module of a Faster R-CNN whose outputs, the maps of the boxes, are the inputs of its box head.
BOX_MAPS = "roi_heads.box_roi_pool"


@register_pass("rankfeat")
@dataclass(config=STRICT, kw_only=True)
class RankFeat(Pass):
    """The network's output without the rank-1 component of the maps of a block, mean over blocks.

    The method RankFeat is the energy of these logits: `{method: energy, pass: rankfeat}`. Maps are
    those of images for a classifier; for Faster R-CNN the pooled map of each box, from which only
    the box head is run again. No paper defines the removal for objects.

    Formula:
        z = (1/L) Σ_l z^(l), z^(l) the logits if each map X of block l, C channels × n cells,
        becomes X − s₁ u₁ v₁ᵀ, s₁ the largest singular value of X, u₁ and v₁ its vectors; the same
        for features

    Args:
        layers: Names of the modules l, as PyTorch's `named_modules` gives them: each is one more
            pass. None takes the pooled maps of Faster R-CNN, and the last two blocks of a
            classifier (see `last_blocks`), as the paper.

    References:
        Song et al., "RankFeat: Rank-1 Feature Removal for Out-of-distribution Detection", 2022,
        arXiv:2209.08590. Code: https://github.com/KingJamesSong/RankFeat
    """

    layers: Annotated[tuple[str, ...], Field(min_length=1)] | None = None

    @property
    def forward_passes(self) -> int:
        """See `Pass.forward_passes`; 2 by default, although Faster R-CNN needs one only."""
        if self.layers is None:
            return 2
        return len(self.layers)

    def _layers(self, network: nn.Module) -> tuple[str, ...]:
        """Names of the modules whose maps are changed."""
        if self.layers is not None:
            return self.layers
        if BOX_MAPS in dict(network.named_modules()):
            return (BOX_MAPS,)
        return last_blocks(network)

    def check(self, detector: Detector) -> None:
        """See `Pass.check`."""
        check_replay(self, detector)
        network = network_of(detector)
        for name in self._layers(network):
            find_module(network, name, "layers")

    @property
    def shares_forward(self) -> bool:
        """See `Pass.shares_forward`."""
        return True

    def forward(self, detector: Detector, prepared: list, image_ids: list[str]) -> Regions:
        """See `Pass.forward`."""
        return self.after_detection(detector, recomputable(detector).replay(prepared), image_ids)

    def after_detection(self, detector: Detector, replay: Replay, image_ids: list[str]) -> Regions:
        """See `Pass.after_detection`."""
        network = network_of(detector)
        regions = replay.regions(image_ids)
        outputs = [
            forward_without_rank_one(replay, network, layer, image_ids)
            for layer in self._layers(network)
        ]

        mean_logits = torch.stack([output.logits for output in outputs]).mean(0)
        columns = {"logits": to_numpy(mean_logits)}
        features = [output.features for output in outputs if output.features is not None]
        if features and regions.features is not None:
            mean_features = to_numpy(torch.stack(features).mean(0))
            columns["features"] = mean_features.astype(regions.features.dtype)
        shared = {name: regions.frame[name] for name in (*KEYS, *SHARED)}
        return Regions(header=self.header(detector), **shared, **columns)


def last_blocks(network: nn.Module) -> tuple[str, str]:
    """Names of the last two blocks of a network, in reverse order.

    In a ResNet these are `layer4` and `layer3`. A block is a module with children and siblings that
    has no linear layer of as many outputs as the network's last one, as classifier and auxiliary
    heads have.

    Raises:
        ParameterError: there are no two blocks.
    """
    linear_layers = [module for module in network.modules() if isinstance(module, nn.Linear)]
    class_count = linear_layers[-1].out_features
    heads = [layer for layer in linear_layers if layer.out_features == class_count]
    prefix = ""
    parent = network
    while True:
        blocks = []
        for name, module in parent.named_children():
            has_children = any(True for _ in module.children())
            if has_children and not any(part in heads for part in module.modules()):
                blocks.append(name)
        if len(blocks) > 1:
            return f"{prefix}{blocks[-1]}", f"{prefix}{blocks[-2]}"
        if not blocks:
            problem = f"{type(network).__name__} has no two blocks that end in maps"
            raise ParameterError(
                f"parameter 'layers': {problem}; name modules, as `named_modules` gives them"
            )
        prefix = f"{prefix}{blocks[0]}."
        parent = parent.get_submodule(blocks[0])


def forward_without_rank_one(
    replay: Replay, network: nn.Module, layer: str, image_ids: Sequence[str]
) -> RowOutputs:
    """The output for a batch's rows when the maps of a module lack their rank-1 component.

    Raises:
        ParameterError: the network has no such module, or its output is not a map per image or per
            box.
    """
    module = find_module(network, layer, "layers")
    if layer == BOX_MAPS:
        # Only the box head is run again: dropout with rate 0 in it changes nothing.
        box_head = BOX_HEAD[0]
        with _input_without_rank_one(network.get_submodule(box_head), layer):
            return replay.recompute(dropout=Dropout(0.0, 0, 0, image_ids, (box_head,)))
    with _output_without_rank_one(module, layer):
        return replay.recompute(replay.images)


@contextmanager
def _input_without_rank_one(module: nn.Module, layer: str) -> Iterator[None]:
    """Removes the rank-1 component of a module's input, the output of `layer`, in a block."""

    def change_input(_module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return (without_rank_one(_checked_maps(inputs[0], layer)), *inputs[1:])

    hook = module.register_forward_pre_hook(change_input)
    try:
        yield
    finally:
        hook.remove()


@contextmanager
def _output_without_rank_one(module: nn.Module, layer: str) -> Iterator[None]:
    """Removes the rank-1 component of a module's output, in a block."""

    def change_output(_module: nn.Module, _inputs: tuple[Any, ...], output: Any) -> Tensor:
        return without_rank_one(_checked_maps(output, layer))

    hook = module.register_forward_hook(change_output)
    try:
        yield
    finally:
        hook.remove()


def _checked_maps(maps: Any, layer: str) -> Tensor:
    """The output of a layer, which must be maps of shape (N, C, h, w)."""
    if isinstance(maps, Tensor) and maps.ndim == 4:
        return maps
    shape = tuple(maps.shape) if isinstance(maps, Tensor) else type(maps).__name__
    problem = f"the output of {layer!r} is {shape}, not (images, channels, rows, columns)"
    raise ParameterError(f"parameter 'layers': {problem}; name another module")


def without_rank_one(maps: Tensor) -> Tensor:
    """Maps without their rank-1 component: X − s₁ u₁ v₁ᵀ for each map X of shape (C, h · w).

    v₁ is the first eigenvector of Xᵀ X, or u₁ that of X Xᵀ, whichever is the smaller matrix;
    computed in float64.

    Args:
        maps: Shape (N, C, h, w).

    Returns:
        Shape (N, C, h, w), of the same type.
    """
    # MPS has no float64.
    matrices = maps.cpu() if maps.device.type == "mps" else maps
    matrices = matrices.flatten(2).double()
    is_tall = matrices.shape[1] > matrices.shape[2]
    if not is_tall:
        matrices = matrices.transpose(1, 2)
    squares = matrices.transpose(1, 2) @ matrices
    first_vector = torch.linalg.eigh(squares).eigenvectors[:, :, -1:]
    remainder = matrices - (matrices @ first_vector) @ first_vector.transpose(1, 2)
    if not is_tall:
        remainder = remainder.transpose(1, 2)
    return remainder.reshape(maps.shape).to(maps.device, maps.dtype)
