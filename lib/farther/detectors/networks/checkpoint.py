"""Checkpoints of Faster R-CNN: safetensors files that describe their network, and PyTorch files of weights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor
from torchvision.models.detection import FasterRCNN

from farther.detectors.networks.architectures import ENERGY_HEAD, MSRA, Blueprint, EnergyHead, build_network
from farther.detectors.networks.box_variance import VARIANCE_HEAD, VarianceHead
from farther.detectors.networks.detectron2_import import is_detectron2, to_torchvision
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

FORMAT = "farther.faster_rcnn"


def save_checkpoint(
    path: str | Path, state: Mapping[str, Tensor], blueprint: Blueprint, notes: Mapping[str, str] | None = None
) -> None:
    """Writes a state dict in half precision, its blueprint and notes."""
    write_checkpoint(path, state, FORMAT, blueprint, notes)


def read_blueprint(path: str | Path) -> Blueprint:
    """The blueprint of a checkpoint's network, from its metadata; no weights are read.

    Raises:
        DataError: the file is absent or not a safetensors file, or its metadata lacks a field or holds a wrong one.
    """
    metadata = read_metadata(path)
    refuse_format(path, metadata, FORMAT)
    if "architecture" not in metadata:
        raise DataError("the field is missing from the checkpoint's metadata", file=path, field="architecture")
    classes = as_names(path, json_field(path, metadata, "classes"))
    sizes = {name: as_pixels(path, json_field(path, metadata, name), name) for name in ("min_size", "max_size")}
    return Blueprint(metadata["architecture"], classes, **sizes)


def layout_of(path: str | Path) -> str:
    """The library whose names a file's weights have, "torchvision" or "detectron2"; errors as in `read_weights`."""
    return "detectron2" if is_detectron2(read_weights(path)) else "torchvision"


def load_network(path: str | Path, blueprint: Blueprint, unused: tuple[str, ...] = ()) -> FasterRCNN:
    """A network with a checkpoint's weights, in evaluation mode and float32; with VOS's head and that of box variances,
    if they hold one. Weights whose names begin with one of `unused` are left out.

    Raises:
        DataError: the file cannot be read, the architecture is unknown, or see `fill`.
    """
    weights = {name: tensor for name, tensor in read_weights(path).items() if not name.startswith(unused)}
    if is_detectron2(weights):
        if blueprint.architecture != MSRA:
            problem = f"the weights are in Detectron2's layout, which {blueprint.architecture!r} does not compute"
            raise DataError(f"{problem}; take {MSRA!r}", file=path, field="architecture")
        weights = to_torchvision(path, weights, len(blueprint.classes))
    try:
        network = build_network(blueprint)
    except ParameterError as error:
        raise DataError(str(error), file=path, field="architecture") from None
    if any(name.startswith(f"{ENERGY_HEAD}.") for name in weights):
        network.add_module(ENERGY_HEAD, EnergyHead(len(blueprint.classes)))
    if any(name.startswith(f"{VARIANCE_HEAD}.") for name in weights):
        last = network.roi_heads.box_predictor.cls_score
        network.add_module(VARIANCE_HEAD, VarianceHead(last.in_features, last.out_features))
    fill(network, path, weights, f"{blueprint.architecture} with {len(blueprint.classes)} classes")
    return network.eval()
