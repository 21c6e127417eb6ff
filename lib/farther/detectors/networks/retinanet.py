"""The RetinaNets that farther trains, by name, and their checkpoints, which describe their network."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from torch import Tensor, nn
from torchvision.models.detection import RetinaNet
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.backbone_utils import resnet_fpn_backbone
from torchvision.models.detection.retinanet import RetinaNetHead
from torchvision.ops import FrozenBatchNorm2d
from torchvision.ops.feature_pyramid_network import LastLevelP6P7

from farther.detectors.networks.architectures import CompactPyramid
from farther.detectors.networks.weights import (
    as_names,
    as_pixels,
    fill,
    json_field,
    read_metadata,
    read_weights,
    refuse_format,
    write_checkpoint,
)
from farther.errors import DataError, ParameterError

FORMAT = "farther.retinanet"


@dataclass(frozen=True)
class RetinaNetBlueprint:
    """Description from which a network is built; its weights are stored beside it.

    Args:
        architecture: A name of `ARCHITECTURES`.
        classes: The classes, in the order of the logits; there is no background.
        min_size: Images are scaled so that their shorter side has this many pixels …
        max_size: … unless the longer one would then have more than this.
    """

    architecture: str
    classes: tuple[str, ...]
    min_size: int
    max_size: int


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
    """0.9 million weights for scenes of about 224 pixels: strides 8 to 32, anchors of 20 to 165 pixels.

    Groups of channels are normalised in the head, so that it learns from scratch.
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
    write_checkpoint(path, state, FORMAT, blueprint, notes)


def read_retinanet(path: str | Path) -> RetinaNetBlueprint:
    """The blueprint of a checkpoint's network, from its metadata; no weights are read.

    Raises:
        DataError: the file is absent or not a safetensors file, or its metadata lacks a field or
            holds a wrong one.
    """
    metadata = read_metadata(path)
    refuse_format(path, metadata, FORMAT)
    if "architecture" not in metadata:
        raise DataError(
            "the field is missing from the checkpoint's metadata", file=path, field="architecture"
        )
    classes = as_names(path, json_field(path, metadata, "classes"))
    min_size = as_pixels(path, json_field(path, metadata, "min_size"), "min_size")
    max_size = as_pixels(path, json_field(path, metadata, "max_size"), "max_size")
    return RetinaNetBlueprint(metadata["architecture"], classes, min_size, max_size)


def load_retinanet(path: str | Path, blueprint: RetinaNetBlueprint) -> RetinaNet:
    """A network with a checkpoint's weights, in evaluation mode and float32.

    Raises:
        DataError: the file cannot be read, the architecture is unknown, or see `fill`.
    """
    try:
        network = build_retinanet(blueprint)
    except ParameterError as error:
        raise DataError(str(error), file=path, field="architecture") from None
    fill(
        network,
        path,
        read_weights(path),
        f"{blueprint.architecture} with {len(blueprint.classes)} classes",
    )
    return network.eval()
