"""Checkpoints of Detectron2: Faster R-CNN on MSRA's ResNet-50 with a feature pyramid, with or without VOS's head.

Detectron2's trainer writes such a file (`model_final.pth`): the weights under "model", beside the
state of the training. The authors of VOS publish theirs in this layout (Du et al. 2022; ResNet-50,
20 classes of VOC or 10 of BDD). It does not contain strides, order of colours, or scaling of
images: these are taken from their configurations, which `farther.detectors.networks.msra` builds.

`RENAMES` turns torchvision's names into Detectron2's; shapes are those of the network. These change
besides names:

    roi_heads.box_predictor.cls_score   (C + 1 rows)  the background's row goes from the end to the
    beginning roi_heads.box_predictor.bbox_pred   (4 C rows)    gets four rows of zeros at the
    beginning, for the background roi_heads.weight_energy             (1, C)        its weights
    become `vos.energy_weight` (C); its bias is dropped,
                                                      since VOS's energy never uses it
    roi_heads.logistic_regression       (2, 1), (2)   becomes `vos.weight` (2) and `vos.bias` (2);
    class 1 is known
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from farther.detectors.networks.heads import ENERGY_HEAD
from farther.detectors.networks.msra import (
    ANCHOR_RATIOS,
    ANCHOR_SIZES,
    PIXEL_MEAN,
    ExactAnchors,
    build_msra_network,
)
from farther.detectors.networks.weights import other_shapes, refuse_misfit
from farther.errors import DataError

#: First parts of names in Detectron2's files, never in torchvision's.
PREFIXES = ("proposal_generator.", "backbone.bottom_up.")

#: Detectron2's names of VOS's head, to the names of `EnergyHead`.
VOS_NAMES = {
    "roi_heads.weight_energy.weight": f"{ENERGY_HEAD}.energy_weight",
    "roi_heads.logistic_regression.weight": f"{ENERGY_HEAD}.weight",
    "roi_heads.logistic_regression.bias": f"{ENERGY_HEAD}.bias",
}
ENERGY_BIAS = "roi_heads.weight_energy.bias"

#: Constants that older versions of Detectron2 store besides the weights. They are checked, and not
#: needed.
PIXELS = {"pixel_mean": PIXEL_MEAN, "pixel_std": (1.0, 1.0, 1.0)}
CELL_ANCHORS = "proposal_generator.anchor_generator.cell_anchors."

#: Detectron2 counts the stages of ResNet-50 from res2 and the pyramid's levels from 2, torchvision
#: from layer1 and 0.
RENAMES: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (r"^backbone\.body\.layer(\d)", lambda found: f"backbone.bottom_up.res{int(found[1]) + 1}"),
    (r"^backbone\.body", "backbone.bottom_up.stem"),
    (r"\.downsample\.0", ".shortcut"),
    (r"\.downsample\.1", ".shortcut.norm"),
    (r"\.bn(\d)", r".conv\1.norm"),
    (
        r"^backbone\.fpn\.inner_blocks\.(\d)\.0",
        lambda found: f"backbone.fpn_lateral{int(found[1]) + 2}",
    ),
    (
        r"^backbone\.fpn\.layer_blocks\.(\d)\.0",
        lambda found: f"backbone.fpn_output{int(found[1]) + 2}",
    ),
    (r"^rpn\.head\.conv\.0\.0", "proposal_generator.rpn_head.conv"),
    (r"^rpn\.head\.cls_logits", "proposal_generator.rpn_head.objectness_logits"),
    (r"^rpn\.head\.bbox_pred", "proposal_generator.rpn_head.anchor_deltas"),
    (r"box_head\.fc6", "box_head.fc1"),
    (r"box_head\.fc7", "box_head.fc2"),
)


def torchvision_names(classes: int) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Detectron2's name of every weight, to torchvision's name and the shape in Detectron2's file; VOS's head left out.

    >>> len(torchvision_names(20)), torchvision_names(20)["backbone.bottom_up.stem.conv1.weight"]
    (295, ('backbone.body.conv1.weight', (64, 3, 7, 7)))
    """
    with torch.device("meta"):
        state = build_msra_network(classes + 1, 800, 1333).state_dict()
    names = {}
    for ours, tensor in state.items():
        theirs, shape = ours, tuple(tensor.shape)
        for pattern, renamed in RENAMES:
            theirs = re.sub(pattern, renamed, theirs)
        if ours.startswith("roi_heads.box_predictor.bbox_pred"):
            shape = (4 * classes, *shape[1:])
        names[theirs] = ours, shape
    return names


def is_detectron2(names: Iterable[str]) -> bool:
    """True for names in Detectron2's layout."""
    return any(name.startswith(PREFIXES) for name in names)


def to_torchvision(
    path: str | Path, weights: Mapping[str, Tensor], classes: int
) -> dict[str, Tensor]:
    """The state dict of `build_msra_network`, and of `EnergyHead` where there is VOS's head, from Detectron2's weights.

    Args:
        path: The file, for messages.
        weights: All weights of the checkpoint, by Detectron2's names.
        classes: C, without the background.

    Raises:
        DataError: names are missing or unexpected, or shapes differ: says which, all together; or
            the means of the pixels or the anchors are not those of these networks.
    """
    names = torchvision_names(classes)
    vos = {
        "weight_energy.weight": (1, classes),
        "logistic_regression.weight": (2, 1),
        "logistic_regression.bias": (2,),
    }
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
        score, box = (
            f"roi_heads.box_predictor.cls_score.{part}",
            f"roi_heads.box_predictor.bbox_pred.{part}",
        )
        state[score] = state[score].roll(1, dims=0)
        state[box] = torch.cat([torch.zeros_like(state[box][:4]), state[box]])
    if has_head:
        state |= {ours: weights[theirs].flatten() for theirs, ours in VOS_NAMES.items()}
    return state


def _check_constants(path: str | Path, weights: Mapping[str, Tensor]) -> None:
    """Refuses a network that was trained on other pixels or other anchors; newer files do not contain them."""
    anchors = ExactAnchors(
        tuple((size,) for size in ANCHOR_SIZES), (ANCHOR_RATIOS,) * len(ANCHOR_SIZES)
    )
    expected = {name: torch.tensor(values) for name, values in PIXELS.items()}
    expected |= {f"{CELL_ANCHORS}{level}": cell for level, cell in enumerate(anchors.cell_anchors)}
    for name, values in expected.items():
        found = weights.get(name, values).float()
        if found.numel() != values.numel() or not torch.allclose(
            found.flatten(), values.flatten(), atol=1e-2
        ):
            problem = f"expected {values.flatten().tolist()}, found {found.flatten().tolist()}"
            advice = "only networks on MSRA's ResNet-50 with the usual anchors are read"
            raise DataError(f"{problem}: {advice}", file=path, field=name)
