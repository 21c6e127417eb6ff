"""The RetinaNets that farther trains, by name, and their checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

from torch import Tensor, nn
from torchvision.models.detection import RetinaNet
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.backbone_utils import resnet_fpn_backbone
from torchvision.models.detection.retinanet import RetinaNetHead
from torchvision.ops import FrozenBatchNorm2d
from torchvision.ops.feature_pyramid_network import LastLevelP6P7

from farther.detectors.networks.architectures import CompactPyramid
from farther.detectors.networks.blueprints import Blueprint
from farther.detectors.networks.weights import (
    LAST_LAYERS,
    BlankWeights,
    load_weights,
    read_weights,
    write_checkpoint,
)
from farther.errors import DataError, ParameterError


@dataclass(frozen=True)
class RetinaNetBlueprint(Blueprint):
    """Description of a RetinaNet; `architecture` is a name of `ARCHITECTURES`.

    Its logits have no column for the background.
    """

    FORMAT: ClassVar[str] = "farther.retinanet"


def _resnet50_fpn(blueprint: RetinaNetBlueprint) -> RetinaNet:
    """torchvision's `retinanet_resnet50_fpn` (Lin et al. 2017) as it is set up for fine-tuning."""
    backbone = resnet_fpn_backbone(
        backbone_name="resnet50",
        weights=None,
        norm_layer=FrozenBatchNorm2d,
        trainable_layers=3,
        returned_layers=[2, 3, 4],
        extra_blocks=LastLevelP6P7(256, 256),
    )
    return RetinaNet(
        backbone, len(blueprint.classes), min_size=blueprint.min_size, max_size=blueprint.max_size
    )


def _small(blueprint: RetinaNetBlueprint) -> RetinaNet:
    """A network of 0.9 million weights for scenes of about 224 pixels.

    It has strides of 8 to 32, and anchors of 20 to 165 pixels. Groups of channels are normalised in
    the head, so that it learns from scratch.
    """
    pyramid = CompactPyramid(widths=(16, 32, 64, 96, 128), blocks=(1, 1, 1, 1), out_channels=64)
    sizes = ((20, 26, 33), (46, 58, 73), (104, 131, 165))
    anchors = AnchorGenerator(sizes, ((0.5, 1.0, 2.0),) * len(sizes))
    head = RetinaNetHead(
        pyramid.out_channels,
        anchors.num_anchors_per_location()[0],
        len(blueprint.classes),
        norm_layer=partial(nn.GroupNorm, 8),
    )
    return RetinaNet(
        pyramid,
        len(blueprint.classes),
        min_size=blueprint.min_size,
        max_size=blueprint.max_size,
        anchor_generator=anchors,
        head=head,
    )


#: Checkpoints store only the name: the network behind a name never changes, new ones get new names.
ARCHITECTURES: dict[str, Callable[[RetinaNetBlueprint], RetinaNet]] = {
    "resnet50_fpn": _resnet50_fpn,
    "small": _small,
}

#: Those whose first layers and all normalisations never learn, so that training must start from
#: weights.
FROZEN = frozenset({"resnet50_fpn"})


def build_retinanet(blueprint: RetinaNetBlueprint) -> RetinaNet:
    """An untrained network, its weights drawn from PyTorch's global generator.

    Raises:
        ParameterError: the architecture is unknown.
    """
    if blueprint.architecture not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise ParameterError(f"unknown architecture {blueprint.architecture!r}. Known: {known}")
    return ARCHITECTURES[blueprint.architecture](blueprint)


def save_retinanet(
    path: str | Path,
    state: Mapping[str, Tensor],
    blueprint: RetinaNetBlueprint,
    notes: Mapping[str, str] | None = None,
) -> None:
    """Writes a state dict in half precision, its blueprint and notes."""
    write_checkpoint(path, state, blueprint.FORMAT, blueprint, notes)


def load_retinanet(path: str | Path, blueprint: RetinaNetBlueprint) -> RetinaNet:
    """A network with a checkpoint's weights, in evaluation mode and float32.

    Raises:
        DataError: the file cannot be read, the architecture is unknown, or see `fill`.
    """
    try:
        with BlankWeights():
            network = build_retinanet(blueprint)
    except ParameterError as error:
        raise DataError(str(error), file=path, field="architecture") from None
    description = f"{blueprint.architecture} with {len(blueprint.classes)} classes"
    load_weights(network, path, read_weights(path, LAST_LAYERS), description)
    return network.eval()
