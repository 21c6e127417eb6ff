"""Checkpoints of Detectron2: Faster R-CNN on MSRA's ResNet-50 with a feature pyramid, with or without VOS's head.

Detectron2's trainer writes such a file (`model_final.pth`): the weights under "model", beside the state of the
training. The authors of VOS publish theirs in this layout (Du et al. 2022; ResNet-50, 20 classes of VOC or 10 of BDD).
It does not contain strides, order of colours, or scaling of images: these are taken from their configurations, which
`farther.detectors.networks.msra` builds.

The layers are listed by name and shape in `LAYERS` and the functions below it. These change besides their names:

    roi_heads.box_predictor.cls_score   (C + 1 rows)  the background's row goes from the end to the beginning
    roi_heads.box_predictor.bbox_pred   (4 C rows)    gets four rows of zeros at the beginning, for the background
    roi_heads.weight_energy             (1, C)        its weights become `vos.energy_weight` (C); its bias is dropped,
                                                      since VOS's energy never uses it
    roi_heads.logistic_regression       (2, 1), (2)   becomes `vos.weight` (2) and `vos.bias` (2); class 1 is known
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from farther.detectors.networks.architectures import ENERGY_HEAD
from farther.detectors.networks.msra import ANCHOR_RATIOS, ANCHOR_SIZES, PIXEL_MEAN, ExactAnchors
from farther.detectors.networks.weights import other_shapes, refuse_misfit
from farther.errors import DataError

#: First parts of names in Detectron2's files, never in torchvision's.
PREFIXES = ("proposal_generator.", "backbone.bottom_up.")

#: Blocks of each stage of ResNet-50; Detectron2 counts the stages from res2, torchvision from layer1.
BLOCKS = (3, 4, 6, 3)

#: Detectron2's names of VOS's head, to the names of `EnergyHead`.
VOS_NAMES = {
    "roi_heads.weight_energy.weight": f"{ENERGY_HEAD}.energy_weight",
    "roi_heads.logistic_regression.weight": f"{ENERGY_HEAD}.weight",
    "roi_heads.logistic_regression.bias": f"{ENERGY_HEAD}.bias",
}
ENERGY_BIAS = "roi_heads.weight_energy.bias"

#: Constants that older versions of Detectron2 store besides the weights. They are checked, and not needed.
PIXELS = {"pixel_mean": PIXEL_MEAN, "pixel_std": (1.0, 1.0, 1.0)}
CELL_ANCHORS = "proposal_generator.anchor_generator.cell_anchors."

BODY, PYRAMID = "backbone.bottom_up.", "backbone."
RPN, TORCHVISION_RPN = "proposal_generator.rpn_head.", "rpn.head."
ANCHORS = len(ANCHOR_RATIOS)


class Layer(NamedTuple):
    """A layer: its names in both libraries, the shape of its weight, and its other parameters, one value per row."""

    detectron2: str
    torchvision: str
    shape: tuple[int, ...]
    rest: tuple[str, ...] = ("bias",)


#: The layers outside the body whose sizes do not depend on the classes.
LAYERS = (
    *(
        Layer(f"{PYRAMID}fpn_lateral{n + 2}", f"backbone.fpn.inner_blocks.{n}.0", (256, 256 << n, 1, 1))
        for n in range(len(BLOCKS))
    ),
    *(
        Layer(f"{PYRAMID}fpn_output{n + 2}", f"backbone.fpn.layer_blocks.{n}.0", (256, 256, 3, 3))
        for n in range(len(BLOCKS))
    ),
    Layer(f"{RPN}conv", f"{TORCHVISION_RPN}conv.0.0", (256, 256, 3, 3)),
    Layer(f"{RPN}objectness_logits", f"{TORCHVISION_RPN}cls_logits", (ANCHORS, 256, 1, 1)),
    Layer(f"{RPN}anchor_deltas", f"{TORCHVISION_RPN}bbox_pred", (4 * ANCHORS, 256, 1, 1)),
    Layer("roi_heads.box_head.fc1", "roi_heads.box_head.fc6", (1024, 256 * 7 * 7)),
    Layer("roi_heads.box_head.fc2", "roi_heads.box_head.fc7", (1024, 1024)),
)


def body_layers() -> list[Layer]:
    """The convolutions and normalisations of ResNet-50 (He et al. 2016)."""
    layers = _convolution("stem.conv1", "conv1", "bn1", (64, 3, 7, 7))
    channels = 64
    for stage, blocks in enumerate(BLOCKS):
        width, wide = 64 << stage, 256 << stage
        for block in range(blocks):
            ours, theirs = f"layer{stage + 1}.{block}.", f"res{stage + 2}.{block}."
            if block == 0:
                names = f"{ours}downsample.0", f"{ours}downsample.1"
                layers += _convolution(f"{theirs}shortcut", *names, (wide, channels, 1, 1))
            shapes = (width, channels, 1, 1), (width, width, 3, 3), (wide, width, 1, 1)
            for number, shape in enumerate(shapes, 1):
                layers += _convolution(f"{theirs}conv{number}", f"{ours}conv{number}", f"{ours}bn{number}", shape)
            channels = wide
    return layers


def _convolution(theirs: str, convolution: str, norm: str, shape: tuple[int, ...]) -> list[Layer]:
    """A convolution without a bias, and the frozen normalisation that follows it."""
    ours = "backbone.body."
    norms = ("bias", "running_mean", "running_var")
    return [
        Layer(f"{BODY}{theirs}", f"{ours}{convolution}", shape, ()),
        Layer(f"{BODY}{theirs}.norm", f"{ours}{norm}", shape[:1], norms),
    ]


def predictor_layers(classes: int) -> list[Layer]:
    """The layers whose sizes depend on the number of classes, in Detectron2's shapes."""
    name = "roi_heads.box_predictor."
    return [
        Layer(f"{name}cls_score", f"{name}cls_score", (classes + 1, 1024)),
        Layer(f"{name}bbox_pred", f"{name}bbox_pred", (4 * classes, 1024)),
    ]


def torchvision_names(classes: int) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Detectron2's name of every weight, to torchvision's name and the shape in Detectron2's file; VOS's head left out.

    >>> len(torchvision_names(20)), torchvision_names(20)["backbone.bottom_up.stem.conv1.weight"]
    (295, ('backbone.body.conv1.weight', (64, 3, 7, 7)))
    """
    names = {}
    for layer in (*body_layers(), *LAYERS, *predictor_layers(classes)):
        names[f"{layer.detectron2}.weight"] = f"{layer.torchvision}.weight", layer.shape
        for part in layer.rest:
            names[f"{layer.detectron2}.{part}"] = f"{layer.torchvision}.{part}", layer.shape[:1]
    return names


def is_detectron2(names: Iterable[str]) -> bool:
    """True for names in Detectron2's layout."""
    return any(name.startswith(PREFIXES) for name in names)


def to_torchvision(path: str | Path, weights: Mapping[str, Tensor], classes: int) -> dict[str, Tensor]:
    """The state dict of `build_msra_network`, and of `EnergyHead` where there is VOS's head, from Detectron2's weights.

    Args:
        path: The file, for messages.
        weights: All weights of the checkpoint, by Detectron2's names.
        classes: C, without the background.

    Raises:
        DataError: names are missing or unexpected, or shapes differ: says which, all together; or the means of the
            pixels or the anchors are not those of these networks.
    """
    names = torchvision_names(classes)
    vos = {"weight_energy.weight": (1, classes), "logistic_regression.weight": (2, 1), "logistic_regression.bias": (2,)}
    vos_shapes = {f"roi_heads.{name}": shape for name, shape in vos.items()} | {ENERGY_BIAS: (1,)}
    has_head = any(name in weights for name in vos_shapes)
    shapes = {name: shape for name, (_, shape) in names.items()} | (vos_shapes if has_head else {})
    optional = (*PIXELS, *(f"{CELL_ANCHORS}{level}" for level in range(len(ANCHOR_SIZES))))
    problems = {
        "missing": [name for name in shapes if name not in weights],
        "unexpected": [name for name in weights if name not in shapes and name not in optional],
        "of another shape": other_shapes(shapes, weights),
    }
    what = f"Detectron2's Faster R-CNN on ResNet-50 with a feature pyramid and {classes} classes"
    refuse_misfit(path, what, problems)
    _check_constants(path, weights)
    state = {ours: weights[theirs] for theirs, (ours, _) in names.items()}
    for part in ("weight", "bias"):
        score, box = f"roi_heads.box_predictor.cls_score.{part}", f"roi_heads.box_predictor.bbox_pred.{part}"
        state[score] = state[score].roll(1, dims=0)
        state[box] = torch.cat([torch.zeros_like(state[box][:4]), state[box]])
    if has_head:
        state |= {ours: weights[theirs].flatten() for theirs, ours in VOS_NAMES.items()}
    return state


def _check_constants(path: str | Path, weights: Mapping[str, Tensor]) -> None:
    """Refuses a network that was trained on other pixels or other anchors; newer files do not contain them."""
    anchors = ExactAnchors(tuple((size,) for size in ANCHOR_SIZES), (ANCHOR_RATIOS,) * len(ANCHOR_SIZES))
    expected = {name: torch.tensor(values) for name, values in PIXELS.items()}
    expected |= {f"{CELL_ANCHORS}{level}": cell for level, cell in enumerate(anchors.cell_anchors)}
    for name, values in expected.items():
        found = weights.get(name, values).float()
        if found.numel() != values.numel() or not torch.allclose(found.flatten(), values.flatten(), atol=1e-2):
            problem = f"expected {values.flatten().tolist()}, found {found.flatten().tolist()}"
            advice = "only networks on MSRA's ResNet-50 with the usual anchors are read"
            raise DataError(f"{problem}: {advice}", file=path, field=name)
