"""Safetensors files: weights in half precision beside text that describes them; the same content is the same bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from farther.errors import DataError
from farther.tables.files import write_aside


def write_tensors(path: str | Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Writes tensors, in half precision where their values fit, and text beside them. Replaces the file.

    Args:
        path: The safetensors file; its folder is made, its mode is what the umask leaves.
        tensors: By name, on any device; several may share their memory, as tied weights do.
        metadata: Text by name.
    """
    content = save({name: _half(tensor) for name, tensor in tensors.items()}, dict(metadata))
    with write_aside(path) as aside:
        # Not the library's own `save_file`, which makes files that no other user can read.
        aside.write_bytes(_with_sorted_metadata(content))


def read_metadata(path: str | Path) -> dict[str, str]:
    """The text beside the tensors; no tensor is read.

    Raises:
        DataError: the file is absent, or is no safetensors file.
    """
    return _read(path, "metadata")


def read_tensors(path: str | Path) -> dict[str, Tensor]:
    """All tensors by name, in the types they were written in, on the CPU.

    Raises:
        DataError: the file is absent, or is no safetensors file.
    """
    return _read(path, "tensors")


def json_field(path: str | Path, metadata: Mapping[str, str], name: str) -> Any:
    """The value that a field of the metadata holds as JSON.

    Args:
        path: What messages call the file.

    Raises:
        DataError: the field is missing, or is not JSON.
    """
    try:
        return json.loads(metadata[name])
    except KeyError:
        raise DataError("the field is missing from the checkpoint's metadata", file=path, field=name) from None
    except json.JSONDecodeError as error:
        raise DataError(f"not JSON: {error.msg}", file=path, field=name) from None


def floats(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same tensors, all that are no counts in float32."""
    return {name: t.float() if t.is_floating_point() else t for name, t in tensors.items()}


def _half(tensor: Tensor) -> Tensor:
    """In memory of its own and in half precision, unless it holds counts or numbers too large for that."""
    tensor = tensor.detach().cpu()
    half = tensor.half() if tensor.is_floating_point() else tensor
    return (half if torch.isfinite(half).all() else tensor).clone(memory_format=torch.contiguous_format)


def _with_sorted_metadata(content: bytes) -> bytes:
    """The bytes of a safetensors file, put in order: the library leaves the order of the metadata to chance."""
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + content[start:]


def _read(path: str | Path, part: str) -> dict[str, Any]:
    if not Path(path).is_file():
        raise DataError("the file does not exist", file=path)
    try:
        with safe_open(path, framework="pt") as file:
            if part == "metadata":
                return file.metadata() or {}
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
    except (SafetensorError, OSError) as error:
        raise DataError(f"not a readable safetensors file: {error}", file=path) from None
