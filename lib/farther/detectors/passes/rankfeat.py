"""Logits without the rank-1 part of inner activations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from farther.detectors.base import Detector
from farther.detectors.networks.faster_rcnn import BOX_HEAD
from farther.detectors.networks.replay import Dropout, Replay, RowOutputs
from farther.detectors.networks.taps import find_module
from farther.detectors.passes.base import KEPT, Pass, check_replay, network_of, register_pass
from farther.detectors.settings import to_numpy
from farther.errors import ParameterError
from farther.registry import STRICT
from farther.tables import Regions

#: The module whose output are the maps of the boxes of a Faster R-CNN, which its box head takes.
BOX_MAPS = "roi_heads.box_roi_pool"


@register_pass("rankfeat")
@dataclass(config=STRICT, kw_only=True)
class RankFeat(Pass):
    """The network's output when the maps of a block lack the part of their largest singular value, mean over blocks.

    The method RankFeat is the energy of these logits: `{method: energy, pass: rankfeat}`. Maps are
    those of whole images for a classifier; for Faster R-CNN each box's pooled map, of which only
    the box head runs again. No paper defines the removal for objects.

    Formula:
        z = (1/L) Σ_l z^(l), z^(l) the logits if each map X of block l, C channels × n cells,
        becomes X − s₁ u₁ v₁ᵀ, s₁ the largest singular value of X, u₁ and v₁ its vectors; features
        likewise

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
        """See `Pass.forward_passes`; two by default, of which Faster R-CNN makes one."""
        return 2 if self.layers is None else len(self.layers)

    def _layers(self, network: nn.Module) -> tuple[str, ...]:
        if self.layers is not None:
            return self.layers
        return (BOX_MAPS,) if BOX_MAPS in dict(network.named_modules()) else last_blocks(network)

    def check(self, detector: Detector) -> None:
        """See `Pass.check`."""
        check_replay(self, detector)
        network = network_of(detector)
        for name in self._layers(network):
            find_module(network, name, "layers")

    def forward(self, detector: Detector, prepared: list, image_ids: list[str]) -> Regions:
        """See `Pass.forward`."""
        replay, network = detector.replay(prepared), network_of(detector)
        found = replay.regions(image_ids)
        answers = [
            again_without(replay, network, layer, image_ids) for layer in self._layers(network)
        ]
        columns = {"logits": to_numpy(torch.stack([answer.logits for answer in answers]).mean(0))}
        features = [answer.features for answer in answers if answer.features is not None]
        if features and found.features is not None:
            columns["features"] = to_numpy(torch.stack(features).mean(0)).astype(
                found.features.dtype
            )
        kept = {name: found.frame[name] for name in KEPT}
        return Regions(header=self.header(detector), **kept, **columns)


def last_blocks(network: nn.Module) -> tuple[str, str]:
    """Names of the last two blocks of a network, the last one first: `layer4` and `layer3` of a ResNet.

    A block is a module of several modules, beside others and without the network's last linear
    layer or one of as many outputs, as auxiliary heads have.

    Raises:
        ParameterError: there are no two blocks.
    """
    linear = [module for module in network.modules() if isinstance(module, nn.Linear)]
    heads = [module for module in linear if module.out_features == linear[-1].out_features]
    prefix, inside = "", network
    while True:
        blocks = [
            name
            for name, module in inside.named_children()
            if len(list(module.children())) and not any(one in heads for one in module.modules())
        ]
        if len(blocks) > 1:
            return f"{prefix}{blocks[-1]}", f"{prefix}{blocks[-2]}"
        if not blocks:
            problem = f"{type(network).__name__} has no two blocks that end in maps"
            raise ParameterError(
                f"parameter 'layers': {problem}; name modules, as `named_modules` gives them"
            )
        prefix, inside = f"{prefix}{blocks[0]}.", inside.get_submodule(blocks[0])


def again_without(
    replay: Replay, network: nn.Module, layer: str, image_ids: Sequence[str]
) -> RowOutputs:
    """The output for a batch's rows when the maps that a module gives lack their rank-1 part.

    Raises:
        ParameterError: the network has no such module, or its output is not a map per image or per
            box.
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
        hook = module.register_forward_pre_hook(
            lambda _module, inputs: (remove(inputs[0]), *inputs[1:])
        )
    else:
        hook = module.register_forward_hook(lambda _module, _given, output: remove(output))
    try:
        yield
    finally:
        hook.remove()


def without_rank_one(maps: Tensor) -> Tensor:
    """Maps minus the part of their largest singular value: X − s₁ u₁ v₁ᵀ for each map X of shape (C, h · w).

    v₁ is the first eigenvector of Xᵀ X, or u₁ that of X Xᵀ, whichever is the smaller matrix;
    computed in float64.

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
