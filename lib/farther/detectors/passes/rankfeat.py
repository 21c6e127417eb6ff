"""Logits without the rank-1 part of inner activations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from farther.detectors.passes.base import Pass, check_replay, network_of, register_pass
from farther.detectors.passes.dropout import KEPT
from farther.detectors.settings import to_numpy
from farther.registry import STRICT
from farther.tables import Regions

if TYPE_CHECKING:
    from farther.detectors.base import Detector


@register_pass("rankfeat")
@dataclass(config=STRICT, kw_only=True)
class RankFeat(Pass):
    """The network's output when the maps of a block lack the part of their largest singular value, mean over blocks.

    The method RankFeat is the energy of these logits: `{method: energy, pass: rankfeat}`. Maps are those of whole
    images for a classifier; for Faster R-CNN each box's pooled map, of which only the box head runs again. No paper
    defines the removal for objects.

    Formula:
        z = (1/L) Σ_l z^(l), z^(l) the logits if each map X of block l, C channels × n cells, becomes X − s₁ u₁ v₁ᵀ,
        s₁ the largest singular value of X, u₁ and v₁ its vectors; features likewise

    Args:
        layers: Names of the modules l, as PyTorch's `named_modules` gives them: each is one more pass. The default is
            that of Faster R-CNN; the paper's of a ResNet are its last two stages, `[layer4, layer3]`.

    References:
        Song et al., "RankFeat: Rank-1 Feature Removal for Out-of-distribution Detection", 2022, arXiv:2209.08590.
        Code: https://github.com/KingJamesSong/RankFeat
    """

    layers: Annotated[tuple[str, ...], Field(min_length=1)] = ("roi_heads.box_roi_pool",)

    @property
    def forward_passes(self) -> int:
        """See `Pass.forward_passes`."""
        return len(self.layers)

    def check(self, detector: Detector) -> None:
        """See `Pass.check`."""
        from farther.detectors.networks.taps import find_module

        check_replay(self, detector)
        for name in self.layers:
            find_module(network_of(detector), name, "layers")

    def forward(self, detector: Detector, prepared: list, image_ids: list[str]) -> Regions:
        """See `Pass.forward`."""
        import torch

        from farther.detectors.networks.rank_one import again_without

        replay, network = detector.replay(prepared), network_of(detector)
        found = replay.regions(image_ids)
        answers = [again_without(replay, network, layer, image_ids) for layer in self.layers]
        columns = {"logits": to_numpy(torch.stack([answer.logits for answer in answers]).mean(0))}
        features = [answer.features for answer in answers if answer.features is not None]
        if features and found.features is not None:
            columns["features"] = to_numpy(torch.stack(features).mean(0)).astype(found.features.dtype)
        kept = {name: found.frame[name] for name in KEPT}
        return Regions(header=self.header(detector), **kept, **columns)
