"""The Faster R-CNN networks that farther can build, by name, and their checkpoints.

A checkpoint is a safetensors file that describes its network, or a PyTorch file of weights.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from torch import Tensor, nn
from torchvision.models.detection import FasterRCNN, fasterrcnn_resnet50_fpn_v2
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.backbone_utils import mobilenet_backbone, resnet_fpn_backbone
from torchvision.models.detection.faster_rcnn import FastRCNNPredictor
from torchvision.ops import (
    Conv2dNormActivation,
    FeaturePyramidNetwork,
    FrozenBatchNorm2d,
    MultiScaleRoIAlign,
)

from farther.detectors.networks.blueprints import Blueprint
from farther.detectors.networks.detectron2_import import is_detectron2, to_torchvision
from farther.detectors.networks.heads import ENERGY_HEAD, VARIANCE_HEAD, EnergyHead, VarianceHead
from farther.detectors.networks.msra import build_msra_network
from farther.detectors.networks.pooling import set_strides
from farther.detectors.networks.weights import (
    LAST_LAYERS,
    BlankWeights,
    load_weights,
    read_weights,
    write_checkpoint,
)
from farther.errors import DataError, ParameterError

BACKGROUND = "background"

#: The architecture of Detectron2's checkpoints.
MSRA = "resnet50_fpn_msra"

#: Two architectures whose weights have the same names and shapes; they differ in the size of images
#: and in the number of proposals.
MOBILE = "mobilenet_v3_large_fpn"
MOBILE_320 = "mobilenet_v3_large_320_fpn"


@dataclass(frozen=True)
class FasterRCNNBlueprint(Blueprint):
    """Description of a Faster R-CNN; `architecture` is a name of `ARCHITECTURES`."""

    FORMAT: ClassVar[str] = "farther.faster_rcnn"

    @property
    def columns(self) -> tuple[str, ...]:
        """Name of each logits column: torchvision keeps the first one for the background."""
        return (BACKGROUND, *self.classes)


@dataclass(frozen=True)
class Architecture:
    """A kind of network.

    Args:
        build: Returns an untrained one.
        strides: Pixels between two cells of each pyramid level that boxes are pooled from, the
            finest first.
        is_frozen: Its first layers and all normalisations never learn, so that training must start
            from weights.
        sides: torchvision's values of `min_size` and `max_size`.
    """

    build: Callable[[FasterRCNNBlueprint], FasterRCNN]
    strides: tuple[int, ...]
    is_frozen: bool
    sides: tuple[int, int] = (800, 1333)


def architecture_of(blueprint: FasterRCNNBlueprint) -> Architecture:
    """The kind of network that a blueprint names.

    Raises:
        ParameterError: it is unknown.
    """
    if blueprint.architecture not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise ParameterError(f"unknown architecture {blueprint.architecture!r}. Known: {known}")
    return ARCHITECTURES[blueprint.architecture]


def build_network(blueprint: FasterRCNNBlueprint) -> FasterRCNN:
    """An untrained network, its weights drawn from PyTorch's global generator.

    Raises:
        ParameterError: the architecture is unknown, or a class is called "background".
    """
    architecture = architecture_of(blueprint)
    if BACKGROUND in blueprint.classes:
        raise ParameterError(
            f"a class cannot be called {BACKGROUND!r}: the background's column has that name"
        )
    network = architecture.build(blueprint)
    set_strides(network.roi_heads.box_roi_pool, architecture.strides)
    return network


def _resnet50_fpn(blueprint: FasterRCNNBlueprint) -> FasterRCNN:
    """torchvision's `fasterrcnn_resnet50_fpn` as it is set up for fine-tuning.

    Ren et al. 2015, Lin et al. 2017.
    """
    backbone = resnet_fpn_backbone(
        backbone_name="resnet50", weights=None, norm_layer=FrozenBatchNorm2d, trainable_layers=3
    )
    return FasterRCNN(
        backbone,
        num_classes=len(blueprint.columns),
        min_size=blueprint.min_size,
        max_size=blueprint.max_size,
    )


def _resnet50_fpn_v2(blueprint: FasterRCNNBlueprint) -> FasterRCNN:
    """torchvision's `fasterrcnn_resnet50_fpn_v2` (Li et al. 2021).

    Its heads are deeper, and its normalisations learn.
    """
    return fasterrcnn_resnet50_fpn_v2(
        weights=None,
        weights_backbone=None,
        num_classes=len(blueprint.columns),
        min_size=blueprint.min_size,
        max_size=blueprint.max_size,
    )


def _mobilenet_v3_large_fpn(blueprint: FasterRCNNBlueprint, **proposals: int) -> FasterRCNN:
    """torchvision's `fasterrcnn_mobilenet_v3_large_fpn` as it is set up for fine-tuning.

    Args:
        proposals: Further settings of the region proposal network.
    """
    backbone = mobilenet_backbone(
        backbone_name="mobilenet_v3_large",
        weights=None,
        fpn=True,
        norm_layer=FrozenBatchNorm2d,
        trainable_layers=3,
    )
    sizes = ((32, 64, 128, 256, 512),) * 3
    return FasterRCNN(
        backbone,
        num_classes=len(blueprint.columns),
        min_size=blueprint.min_size,
        max_size=blueprint.max_size,
        rpn_anchor_generator=AnchorGenerator(sizes, ((0.5, 1.0, 2.0),) * len(sizes)),
        rpn_score_thresh=0.05,
        **proposals,
    )


def _mobilenet_v3_large_320_fpn(blueprint: FasterRCNNBlueprint) -> FasterRCNN:
    """torchvision's `fasterrcnn_mobilenet_v3_large_320_fpn`, for smaller images."""
    return _mobilenet_v3_large_fpn(
        blueprint, rpn_pre_nms_top_n_test=150, rpn_post_nms_top_n_test=150
    )


def _resnet50_fpn_msra(blueprint: FasterRCNNBlueprint) -> FasterRCNN:
    """Detectron2's network on MSRA's ResNet-50 (Wu et al. 2019), on which VOS was published."""
    return build_msra_network(len(blueprint.columns), blueprint.min_size, blueprint.max_size)


class ResidualBlock(nn.Module):
    """Two 3×3 convolutions beside a shortcut (He et al. 2016, the basic block).

    Args:
        channels_in: Channels of the input.
        channels_out: Channels of the output.
        stride: Of the first convolution.
    """

    def __init__(self, channels_in: int, channels_out: int, stride: int):
        super().__init__()
        self.first = Conv2dNormActivation(channels_in, channels_out, 3, stride)
        self.second = Conv2dNormActivation(channels_out, channels_out, 3, activation_layer=None)
        self.shortcut: nn.Module = nn.Identity()
        if channels_in != channels_out or stride != 1:
            self.shortcut = Conv2dNormActivation(
                channels_in, channels_out, 1, stride, activation_layer=None
            )
        self.activation = nn.ReLU(inplace=True)
        # The block starts as its shortcut, which lets a deep network learn from the first step
        # (Goyal et al. 2017).
        nn.init.zeros_(self.second[1].weight)

    def forward(self, x: Tensor) -> Tensor:
        """Shape (B, channels_in, H, W) → (B, channels_out, H / stride, W / stride)."""
        return self.activation(self.second(self.first(x)) + self.shortcut(x))


class CompactPyramid(nn.Module):
    """Levels "0", "1", … at strides 8, 16, …, all of the same width.

    Args:
        widths: Channels at strides 2, 4, 8, …
        blocks: Residual blocks at strides 4, 8, …: one number fewer than `widths`.
        out_channels: Width of every pyramid level.
    """

    def __init__(self, widths: tuple[int, ...], blocks: tuple[int, ...], out_channels: int):
        super().__init__()
        self.out_channels = out_channels
        self.stem = Conv2dNormActivation(3, widths[0], 3, 2)
        self.steps = nn.ModuleList()
        for before, after, count in zip(widths[:-1], widths[1:], blocks, strict=True):
            step = nn.Sequential(ResidualBlock(before, after, 2))
            for _ in range(count - 1):
                step.append(ResidualBlock(after, after, 1))
            self.steps.append(step)
        self.pyramid = FeaturePyramidNetwork(
            list(widths[2:]), out_channels, norm_layer=nn.BatchNorm2d
        )

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        """Shape (B, 3, H, W) → {"0": (B, out_channels, H / 8, W / 8), "1": …}."""
        x = self.steps[0](self.stem(x))
        levels: OrderedDict[str, Tensor] = OrderedDict()
        for number, step in enumerate(self.steps[1:]):
            x = step(x)
            levels[str(number)] = x
        return self.pyramid(levels)


class NormalizedHead(nn.Sequential):
    """Box head of two linear layers, each normalised over the proposals.

    So it learns from the first step.

    Args:
        channels_in: Values of one pooled proposal.
        width: Features of the box head.
    """

    def __init__(self, channels_in: int, width: int):
        layers: list[nn.Module] = [nn.Flatten()]
        for before in (channels_in, width):
            layers += [
                nn.Linear(before, width, bias=False),
                nn.BatchNorm1d(width),
                nn.ReLU(inplace=True),
            ]
        super().__init__(*layers)


def _small(blueprint: FasterRCNNBlueprint) -> FasterRCNN:
    """A network of 2.5 million weights for scenes of about 224 pixels.

    It has strides of 8 to 32, and anchors of 20 to 150 pixels.
    """
    pyramid = CompactPyramid(widths=(24, 48, 96, 160, 224), blocks=(1, 1, 1, 1), out_channels=64)
    sizes = ((20, 30), (46, 70), (104, 150))
    pool = MultiScaleRoIAlign(["0", "1", "2"], output_size=7, sampling_ratio=1, canonical_scale=112)
    return FasterRCNN(
        pyramid,
        min_size=blueprint.min_size,
        max_size=blueprint.max_size,
        rpn_anchor_generator=AnchorGenerator(sizes, ((0.5, 1.0, 2.0),) * len(sizes)),
        rpn_pre_nms_top_n_train=200,
        rpn_post_nms_top_n_train=150,
        rpn_pre_nms_top_n_test=200,
        rpn_post_nms_top_n_test=100,
        rpn_batch_size_per_image=128,
        box_roi_pool=pool,
        box_head=NormalizedHead(pyramid.out_channels * 7 * 7, 256),
        box_predictor=FastRCNNPredictor(256, len(blueprint.columns)),
        box_batch_size_per_image=32,
        box_positive_fraction=0.33,
    )


#: Checkpoints store only the name: the network behind a name never changes, new ones get new names.
ARCHITECTURES = {
    "resnet50_fpn": Architecture(_resnet50_fpn, strides=(4, 8, 16, 32), is_frozen=True),
    "resnet50_fpn_v2": Architecture(_resnet50_fpn_v2, strides=(4, 8, 16, 32), is_frozen=False),
    MOBILE: Architecture(_mobilenet_v3_large_fpn, strides=(32, 32), is_frozen=True),
    MOBILE_320: Architecture(
        _mobilenet_v3_large_320_fpn, strides=(32, 32), is_frozen=True, sides=(320, 640)
    ),
    MSRA: Architecture(_resnet50_fpn_msra, strides=(4, 8, 16, 32), is_frozen=True),
    "small": Architecture(_small, strides=(8, 16, 32), is_frozen=False),
}


def save_checkpoint(
    path: str | Path,
    state: Mapping[str, Tensor],
    blueprint: FasterRCNNBlueprint,
    notes: Mapping[str, str] | None = None,
) -> None:
    """Writes a state dict in half precision, its blueprint and notes."""
    write_checkpoint(path, state, blueprint.FORMAT, blueprint, notes)


def layout_of(path: str | Path) -> str:
    """The library whose names a file's weights have, "torchvision" or "detectron2".

    Raises:
        DataError: see `read_weights`.
    """
    return "detectron2" if is_detectron2(read_weights(path, LAST_LAYERS)) else "torchvision"


def load_network(
    path: str | Path, blueprint: FasterRCNNBlueprint, unused: tuple[str, ...] = ()
) -> FasterRCNN:
    """A network with a checkpoint's weights, in evaluation mode and float32.

    It has VOS's head and the head of box variances if the checkpoint holds their weights.

    Args:
        path: The checkpoint.
        blueprint: Of its network.
        unused: Beginnings of the names of weights that are left out.

    Raises:
        DataError: the file cannot be read, the architecture is unknown, or see `fill`.
    """
    weights = {}
    for name, tensor in read_weights(path, LAST_LAYERS).items():
        if not name.startswith(unused):
            weights[name] = tensor
    if is_detectron2(weights):
        if blueprint.architecture != MSRA:
            problem = (
                "the weights are in Detectron2's layout, "
                f"which {blueprint.architecture!r} does not compute"
            )
            raise DataError(f"{problem}; take {MSRA!r}", file=path, field="architecture")
        weights = to_torchvision(path, weights, len(blueprint.classes))
    try:
        with BlankWeights():
            network = build_network(blueprint)
    except ParameterError as error:
        raise DataError(str(error), file=path, field="architecture") from None
    if any(name.startswith(f"{ENERGY_HEAD}.") for name in weights):
        network.add_module(ENERGY_HEAD, EnergyHead(len(blueprint.classes)))
    if any(name.startswith(f"{VARIANCE_HEAD}.") for name in weights):
        last = network.roi_heads.box_predictor.cls_score
        network.add_module(VARIANCE_HEAD, VarianceHead(last.in_features, last.out_features))
    load_weights(
        network, path, weights, f"{blueprint.architecture} with {len(blueprint.classes)} classes"
    )
    return network.eval()
