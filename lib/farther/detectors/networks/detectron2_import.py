"""Checkpoints of Detectron2: Faster R-CNN on MSRA's ResNet-50 with a feature pyramid.

Detectron2's trainer writes such a file (`model_final.pth`): the weights under "model", beside the
state of the training. The authors of VOS publish theirs in this layout, with VOS's head (Du et al.
2022; ResNet-50, 20 classes of VOC or 10 of BDD). It does not contain strides, order of colours, or
scaling of
images: these are taken from their configurations, which `farther.detectors.networks.msra` builds.

`RENAMES` turns torchvision's names into Detectron2's; shapes are those of the network. These change
besides names:

    roi_heads.box_predictor.cls_score  (C + 1 rows)  The background's row goes from the end to the
                                                     beginning.
    roi_heads.box_predictor.bbox_pred  (4 C rows)    Gets four rows of zeros at the beginning, for
                                                     the background.
    roi_heads.weight_energy            (1, C)        Its weights become `vos.energy_weight` (C); its
                                                     bias is dropped, since VOS's energy never uses
                                                     it.
    roi_heads.logistic_regression      (2, 1), (2)   Becomes `vos.weight` (2) and `vos.bias` (2);
                                                     class 1 is known.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from farther.detectors.networks.heads import ENERGY_HEAD
from farther.detectors.networks.msra import (
    ANCHOR_SIZES,
    PIXEL_MEAN,
    build_msra_network,
    msra_anchors,
)
from farther.detectors.networks.weights import other_shapes, refuse_misfit
from farther.errors import DataError

#: Beginnings of names in Detectron2's files, never in torchvision's.
PREFIXES = ("proposal_generator.", "backbone.bottom_up.")

#: Detectron2's names of VOS's head, to the names of `EnergyHead`.
VOS_NAMES = {
    "roi_heads.weight_energy.weight": f"{ENERGY_HEAD}.energy_weight",
    "roi_heads.logistic_regression.weight": f"{ENERGY_HEAD}.weight",
    "roi_heads.logistic_regression.bias": f"{ENERGY_HEAD}.bias",
}

#: A weight of VOS's head that its energy never uses.
ENERGY_BIAS = "roi_heads.weight_energy.bias"

#: Constants that older versions of Detectron2 store besides the weights. They are checked, and not
#: needed.
PIXELS = {"pixel_mean": PIXEL_MEAN, "pixel_std": (1.0, 1.0, 1.0)}
CELL_ANCHORS = "proposal_generator.anchor_generator.cell_anchors."


def _stage(match: re.Match[str]) -> str:
    """A stage of ResNet-50: Detectron2 counts from res2, torchvision from layer1."""
    return f"backbone.bottom_up.res{int(match[1]) + 1}"


def _lateral(match: re.Match[str]) -> str:
    """A lateral convolution: Detectron2 counts pyramid levels from 2, torchvision from 0."""
    return f"backbone.fpn_lateral{int(match[1]) + 2}"


def _output(match: re.Match[str]) -> str:
    """An output convolution; see `_lateral`."""
    return f"backbone.fpn_output{int(match[1]) + 2}"


#: Patterns of torchvision's names, and their replacements in Detectron2's.
RENAMES: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (r"^backbone\.body\.layer(\d)", _stage),
    (r"^backbone\.body", "backbone.bottom_up.stem"),
    (r"\.downsample\.0", ".shortcut"),
    (r"\.downsample\.1", ".shortcut.norm"),
    (r"\.bn(\d)", r".conv\1.norm"),
    (r"^backbone\.fpn\.inner_blocks\.(\d)\.0", _lateral),
    (r"^backbone\.fpn\.layer_blocks\.(\d)\.0", _output),
    (r"^rpn\.head\.conv\.0\.0", "proposal_generator.rpn_head.conv"),
    (r"^rpn\.head\.cls_logits", "proposal_generator.rpn_head.objectness_logits"),
    (r"^rpn\.head\.bbox_pred", "proposal_generator.rpn_head.anchor_deltas"),
    (r"box_head\.fc6", "box_head.fc1"),
    (r"box_head\.fc7", "box_head.fc2"),
)


def torchvision_names(classes: int) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Torchvision's name, and the shape in Detectron2's file, by Detectron2's name of each weight.

    VOS's head is left out.

    >>> len(torchvision_names(20)), torchvision_names(20)["backbone.bottom_up.stem.conv1.weight"]
    (295, ('backbone.body.conv1.weight', (64, 3, 7, 7)))
    """
    with torch.device("meta"):
        state = build_msra_network(classes + 1, 800, 1333).state_dict()
    names = {}
    for torchvision_name, tensor in state.items():
        name = torchvision_name
        for pattern, replacement in RENAMES:
            name = re.sub(pattern, replacement, name)
        shape = tuple(tensor.shape)
        if torchvision_name.startswith("roi_heads.box_predictor.bbox_pred"):
            shape = (4 * classes, *shape[1:])
        names[name] = (torchvision_name, shape)
    return names


def is_detectron2(names: Iterable[str]) -> bool:
    """True for names in Detectron2's layout."""
    return any(name.startswith(PREFIXES) for name in names)


def to_torchvision(
    path: str | Path, weights: Mapping[str, Tensor], classes: int
) -> dict[str, Tensor]:
    """Converts Detectron2's weights to the state dict of `build_msra_network`.

    Where the checkpoint has VOS's head, so has the state dict: that of `EnergyHead`.

    Args:
        path: The file, for messages.
        weights: All weights of the checkpoint, by Detectron2's names.
        classes: C, without the background.

    Raises:
        DataError: names are missing or unexpected, or shapes differ, all of which are listed; or
            the means of the pixels or the anchors are not those of MSRA's networks.
    """
    names = torchvision_names(classes)
    shapes = {name: shape for name, (_, shape) in names.items()}
    vos_shapes = {
        "roi_heads.weight_energy.weight": (1, classes),
        "roi_heads.logistic_regression.weight": (2, 1),
        "roi_heads.logistic_regression.bias": (2,),
        ENERGY_BIAS: (1,),
    }
    has_vos_head = any(name in weights for name in vos_shapes)
    if has_vos_head:
        shapes |= vos_shapes
    _refuse_other_weights(path, weights, shapes, classes)
    _check_constants(path, weights)

    state = {}
    for name, (torchvision_name, _) in names.items():
        state[torchvision_name] = weights[name]
    for part in ("weight", "bias"):
        scores = f"roi_heads.box_predictor.cls_score.{part}"
        boxes = f"roi_heads.box_predictor.bbox_pred.{part}"
        state[scores] = state[scores].roll(1, dims=0)
        state[boxes] = torch.cat([torch.zeros_like(state[boxes][:4]), state[boxes]])
    if has_vos_head:
        for name, head_name in VOS_NAMES.items():
            state[head_name] = weights[name].flatten()
    return state


def _refuse_other_weights(
    path: str | Path,
    weights: Mapping[str, Tensor],
    shapes: Mapping[str, tuple[int, ...]],
    classes: int,
) -> None:
    """Refuses weights that are missing, unexpected or of another shape, all together."""
    optional = [*PIXELS, *(f"{CELL_ANCHORS}{level}" for level in range(len(ANCHOR_SIZES)))]
    known = {*shapes, *optional}
    problems = {
        "missing": [name for name in shapes if name not in weights],
        "unexpected": [name for name in weights if name not in known],
        "of another shape": other_shapes(shapes, weights),
    }
    description = (
        f"Detectron2's Faster R-CNN on ResNet-50 with a feature pyramid and {classes} classes"
    )
    refuse_misfit(path, description, problems)


def _check_constants(path: str | Path, weights: Mapping[str, Tensor]) -> None:
    """Refuses a network that was trained on other pixels or other anchors.

    Newer files do not contain them.
    """
    expected = {name: torch.tensor(values) for name, values in PIXELS.items()}
    for level, cell_anchors in enumerate(msra_anchors().cell_anchors):
        expected[f"{CELL_ANCHORS}{level}"] = cell_anchors

    for name, tensor in expected.items():
        if name not in weights:
            continue
        values = tensor.flatten()
        stored = weights[name].float().flatten()
        if stored.numel() != values.numel() or not torch.allclose(stored, values, atol=1e-2):
            problem = f"expected {values.tolist()}, found {stored.tolist()}"
            advice = "only networks on MSRA's ResNet-50 with the usual anchors are read"
            raise DataError(f"{problem}: {advice}", file=path, field=name)
