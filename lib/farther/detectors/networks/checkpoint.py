"""Checkpoints of Faster R-CNN: safetensors files that describe their network, and PyTorch files of weights."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor
from torchvision.models.detection import FasterRCNN

from farther.detectors.networks.architectures import ENERGY_HEAD, MSRA, Blueprint, EnergyHead, build_network
from farther.detectors.networks.detectron2_import import is_detectron2, to_torchvision
from farther.detectors.networks.weights import fill, json_field, read_metadata, read_weights, write_tensors
from farther.errors import DataError, ParameterError

FORMAT = "farther.faster_rcnn"


def save_checkpoint(
    path: str | Path, state: Mapping[str, Tensor], blueprint: Blueprint, notes: Mapping[str, str] | None = None
) -> None:
    """Writes a safetensors file: a state dict in half precision, its blueprint, and notes (recipe, data digest)."""
    metadata = {
        **(notes or {}),
        "format": FORMAT,
        "architecture": blueprint.architecture,
        "classes": json.dumps(list(blueprint.classes)),
        "min_size": str(blueprint.min_size),
        "max_size": str(blueprint.max_size),
    }
    write_tensors(path, state, metadata)


def read_blueprint(path: str | Path) -> Blueprint:
    """The blueprint of a checkpoint's network, from its metadata; no weights are read.

    Raises:
        DataError: the file is absent or not a safetensors file, or its metadata lacks a field or holds a wrong one.
    """
    metadata = read_metadata(path)
    if metadata.get("format") != FORMAT:
        problem = f"expected {FORMAT!r}, found {metadata.get('format')!r}: not a checkpoint that farther wrote"
        raise DataError(problem, file=path, field="format")
    for name in ("architecture", "classes", "min_size", "max_size"):
        if name not in metadata:
            raise DataError("the field is missing from the checkpoint's metadata", file=path, field=name)
    classes = json_field(path, metadata, "classes")
    if not isinstance(classes, list) or not all(isinstance(name, str) for name in classes):
        raise DataError(f"expected a list of names, found {classes!r}", file=path, field="classes")
    sizes = {}
    for name in ("min_size", "max_size"):
        if not metadata[name].isdecimal() or int(metadata[name]) == 0:
            raise DataError(f"expected a number of pixels, found {metadata[name]!r}", file=path, field=name)
        sizes[name] = int(metadata[name])
    return Blueprint(metadata["architecture"], tuple(classes), **sizes)


def layout_of(path: str | Path) -> str:
    """The library whose names a file's weights have, "torchvision" or "detectron2"; errors as in `read_weights`."""
    return "detectron2" if is_detectron2(read_weights(path)) else "torchvision"


def load_network(path: str | Path, blueprint: Blueprint) -> FasterRCNN:
    """A network with a checkpoint's weights, in evaluation mode and float32; with VOS's head, if they hold one.

    Raises:
        DataError: the file cannot be read, the architecture is unknown, or see `fill`.
    """
    weights = read_weights(path)
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
    fill(network, path, weights, f"{blueprint.architecture} with {len(blueprint.classes)} classes")
    return network.eval()
