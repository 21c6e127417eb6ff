"""Checkpoints: safetensors files that say how to build the network they belong to."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torchvision.models.detection import FasterRCNN

from farther.detectors.networks.architectures import MSRA, Blueprint, build_network
from farther.detectors.networks.detectron2_import import is_detectron2, to_torchvision
from farther.detectors.networks.energy_head import ENERGY_HEAD, EnergyHead
from farther.detectors.networks.safetensors_file import floats, json_field, read_metadata, read_tensors, write_tensors
from farther.detectors.networks.torch_file import read_torch_file
from farther.errors import DataError, ParameterError

FORMAT = "farther.faster_rcnn"


def save_checkpoint(
    path: str | Path, state: Mapping[str, Tensor], blueprint: Blueprint, notes: Mapping[str, str] | None = None
) -> None:
    """Writes weights in half precision, with all that is needed to build their network again.

    Args:
        path: The safetensors file.
        state: State dict of the network.
        blueprint: How the network was built.
        notes: Further text to keep beside the weights (recipe, data digest).
    """
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
    """How the network of a checkpoint is built, from its metadata; no weights are read.

    Raises:
        DataError: the file is absent, is no safetensors file, or its metadata lacks a field or holds a wrong one.
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


def read_weights(path: str | Path) -> dict[str, Tensor]:
    """The weights of a safetensors file, or of a PyTorch file; what stands beside its "model" is not given out.

    Raises:
        DataError: the file is absent or cannot be read, or holds no weights.
    """
    if Path(path).suffix == ".safetensors":
        return read_tensors(path)
    state = read_torch_file(path)
    if isinstance(state, dict) and isinstance(state.get("model"), dict):
        state = state["model"]  # what torchvision's training scripts and Detectron2's trainer write
    if not isinstance(state, dict):
        raise DataError("expected a state dict: a dictionary of tensors by name", file=path)
    state = {name: torch.from_numpy(value) if isinstance(value, np.ndarray) else value for name, value in state.items()}
    if not all(isinstance(value, Tensor) for value in state.values()):
        raise DataError("expected a state dict: a dictionary of tensors by name", file=path)
    return state


def layout_of(path: str | Path) -> str:
    """Whether a file's weights are named as "torchvision" or as "detectron2" names them.

    Raises:
        DataError: see `read_weights`.
    """
    return "detectron2" if is_detectron2(read_weights(path)) else "torchvision"


def load_network(path: str | Path, blueprint: Blueprint) -> FasterRCNN:
    """A network with a checkpoint's weights, in evaluation mode and float32; with VOS's head, if they hold one.

    Raises:
        DataError: the file cannot be read, or its weights do not fit the network: says which are missing,
            unexpected, of another shape, or not finite.
        ParameterError: the architecture is unknown.
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


def fill(network: nn.Module, path: str | Path, weights: Mapping[str, Tensor], what: str) -> None:
    """Gives a network weights, all of its own and no others.

    Args:
        path: What messages call the weights' file.
        what: What they call the network.

    Raises:
        DataError: weights are missing, unexpected, of another shape, or not finite: says which.
    """
    _check_values(path, weights)
    _check_shapes(path, what, network.state_dict(), weights)
    # Not strict, and checked afterwards: torchvision renames the layers of its older checkpoints while it loads.
    loaded = network.load_state_dict(floats(weights), strict=False)
    problems = {"missing": loaded.missing_keys, "unexpected": loaded.unexpected_keys}
    listed = [f"{kind}: {_listed(names)}" for kind, names in problems.items() if names]
    if listed:
        raise DataError(f"the weights do not fit {what}. {'; '.join(listed)}", file=path)


def _check_values(path: str | Path, weights: Mapping[str, Tensor]) -> None:
    for name, tensor in weights.items():
        if not torch.isfinite(tensor).all():
            raise DataError("holds numbers that are not finite", file=path, field=name)


def _check_shapes(path: str | Path, what: str, expected: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> None:
    other = [name for name in found if name in expected and found[name].shape != expected[name].shape]
    if other:
        shapes = (f"{name} {tuple(found[name].shape)} instead of {tuple(expected[name].shape)}" for name in other)
        raise DataError(f"the weights do not fit {what}. of another shape: {_listed(shapes)}", file=path)


def _listed(names: Iterable[str]) -> str:
    names = list(names)
    rest = len(names) - 8
    return ", ".join(names[:8]) + (f" and {rest} more" if rest > 0 else "")
