"""Checkpoints: safetensors files that say how to build the network they belong to."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from torchvision.models.detection import FasterRCNN

from farther.detectors.networks.architectures import Blueprint, build_network
from farther.detectors.networks.energy_head import ENERGY_HEAD, EnergyHead
from farther.errors import DataError, ParameterError
from farther.tables.files import write_aside

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
    with write_aside(path) as aside:
        save_file({name: _half(tensor.detach().cpu()).contiguous() for name, tensor in state.items()}, aside, metadata)
        _sort_metadata(aside)


def _sort_metadata(path: Path) -> None:
    """Gives a safetensors file the same bytes each time: its writer leaves the order of the metadata to chance."""
    content = path.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + content[start:])


def _half(tensor: Tensor) -> Tensor:
    """In half precision, unless it holds counts or numbers too large for that."""
    if not tensor.is_floating_point():
        return tensor
    half = tensor.half()
    return half if torch.isfinite(half).all() else tensor


def read_blueprint(path: str | Path) -> Blueprint:
    """How the network of a checkpoint is built, from its metadata; no weights are read.

    Raises:
        DataError: the file is absent, is no safetensors file, or its metadata lacks a field or holds a wrong one.
    """
    metadata = _open(path, "metadata")
    if metadata.get("format") != FORMAT:
        problem = f"expected {FORMAT!r}, found {metadata.get('format')!r}: not a checkpoint that farther wrote"
        raise DataError(problem, file=path, field="format")
    for name in ("architecture", "classes", "min_size", "max_size"):
        if name not in metadata:
            raise DataError("the field is missing from the checkpoint's metadata", file=path, field=name)
    try:
        classes = json.loads(metadata["classes"])
    except json.JSONDecodeError as error:
        raise DataError(f"not JSON: {error.msg}", file=path, field="classes") from None
    if not isinstance(classes, list) or not all(isinstance(name, str) for name in classes):
        raise DataError(f"expected a list of names, found {classes!r}", file=path, field="classes")
    sizes = {}
    for name in ("min_size", "max_size"):
        if not metadata[name].isdecimal() or int(metadata[name]) == 0:
            raise DataError(f"expected a number of pixels, found {metadata[name]!r}", file=path, field=name)
        sizes[name] = int(metadata[name])
    return Blueprint(metadata["architecture"], tuple(classes), **sizes)


def read_weights(path: str | Path) -> dict[str, Tensor]:
    """The weights of a safetensors file, or of a PyTorch file that holds a state dict and nothing else.

    Raises:
        DataError: the file is absent or cannot be read, or holds anything but tensors.
    """
    if Path(path).suffix == ".safetensors":
        return _open(path, "weights")
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise DataError("the file does not exist", file=path) from None
    except Exception as error:  # torch.load raises whatever its reader met
        raise DataError(f"not a PyTorch file of weights alone: {str(error).splitlines()[0]}", file=path) from None
    if isinstance(state, dict) and isinstance(state.get("model"), dict):
        state = state["model"]  # what torchvision's training scripts write
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise DataError("expected a state dict: a dictionary of tensors by name", file=path)
    return state


def load_network(path: str | Path, blueprint: Blueprint) -> FasterRCNN:
    """A network with a checkpoint's weights, in evaluation mode and float32; with VOS's head, if they hold one.

    Raises:
        DataError: the file cannot be read, or its weights do not fit the network: says which are missing,
            unexpected, of another shape, or not finite.
        ParameterError: the architecture is unknown.
    """
    weights = read_weights(path)
    try:
        network = build_network(blueprint)
    except ParameterError as error:
        raise DataError(str(error), file=path, field="architecture") from None
    if any(name.startswith(f"{ENERGY_HEAD}.") for name in weights):
        network.add_module(ENERGY_HEAD, EnergyHead(len(blueprint.classes)))
    what = f"{blueprint.architecture} with {len(blueprint.classes)} classes"
    _check_values(path, weights)
    _check_shapes(path, what, network.state_dict(), weights)
    # Not strict, and checked afterwards: torchvision renames the layers of its older checkpoints while it loads.
    loaded = network.load_state_dict(floats(weights), strict=False)
    problems = {"missing": loaded.missing_keys, "unexpected": loaded.unexpected_keys}
    listed = [f"{kind}: {_listed(names)}" for kind, names in problems.items() if names]
    if listed:
        raise DataError(f"the weights do not fit {what}. {'; '.join(listed)}", file=path)
    return network.eval()


def floats(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same weights, all that are no counts in float32."""
    return {name: t.float() if t.is_floating_point() else t for name, t in weights.items()}


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


def _open(path: str | Path, part: str) -> dict:
    if not Path(path).is_file():
        raise DataError("the file does not exist", file=path)
    try:
        with safe_open(path, framework="pt") as file:
            if part == "metadata":
                return file.metadata() or {}
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise DataError(f"not a readable safetensors file: {error}", file=path) from None
