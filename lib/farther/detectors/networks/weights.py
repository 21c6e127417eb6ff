"""Files of weights: farther's safetensors files in half precision, PyTorch's files, and their fit to a network."""

from __future__ import annotations

import json
import re
import zipfile
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from farther.errors import DataError, shorten
from farther.images.bounds import MOST_PIXELS
from farther.tables.documents import parse_json
from farther.tables.files import regular_file
from farther.tables.writing import write_aside

#: Where training programs store the state dict: PyTorch Lightning, torchvision's scripts and
#: Detectron2, and others.
PARTS = ("state_dict", "model", "model_state_dict", "net")


def _path_text(*parts: str) -> str:
    """What takes the place of a path in a file: its text."""
    return "/".join(parts).replace("//", "/")


#: The functions that a pickle names for a NumPy number and a NumPy array.
_make_number, _make_array = np.float64(0).__reduce__()[0], np.zeros(1).__reduce__()[0]

#: Classes and functions that a PyTorch file may name besides PyTorch's: those of numbers and
#: arrays, which Detectron2's trainer stores beside the weights (the module of the two functions had
#: another name before NumPy 2), and the namespaces in which DETR's and rfdetr's store their
#: arguments.
SAFE_GLOBALS: list[Any] = [
    *((_make_number, f"numpy.{core}.multiarray.scalar") for core in ("core", "_core")),
    *((_make_array, f"numpy.{core}.multiarray._reconstruct") for core in ("core", "_core")),
    np.ndarray,
    np.dtype,
    *(
        type(np.dtype(name))
        for name in ("float16", "float32", "float64", "int32", "int64", "uint8", "bool")
    ),
    Namespace,
    SimpleNamespace,
    *((_path_text, f"{module}.PosixPath") for module in ("pathlib", "pathlib._local")),
]


def write_tensors(
    path: str | Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]
) -> None:
    """Writes tensors, in half precision where their values fit, and text beside them. Replaces the file.

    Args:
        path: The safetensors file; its folder is created, its mode follows the umask.
        tensors: By name, on any device; several may share their memory, as tied weights do.
        metadata: Text by name.
    """
    content = save({name: _half(tensor) for name, tensor in tensors.items()}, dict(metadata))
    with write_aside(path) as aside:
        # Not the library's own `save_file`, which makes files that no other user can read.
        aside.write_bytes(_with_sorted_metadata(content))


def write_checkpoint(
    path: str | Path,
    state: Mapping[str, Tensor],
    kind: str,
    blueprint: Any,
    notes: Mapping[str, str] | None,
) -> None:
    """Writes a safetensors file: a state dict, the fields of its network's blueprint, and notes (recipe, data digest).

    Args:
        kind: Format of the file: "farther.yolo".
        blueprint: A dataclass of text, numbers, lists and dicts; fields that are not text are
            written as JSON.
    """
    fields = {
        name: v if isinstance(v, str) else json.dumps(v) for name, v in vars(blueprint).items()
    }
    write_tensors(path, state, {**(notes or {}), "format": kind, **fields})


def read_metadata(path: str | Path) -> dict[str, str]:
    """The text beside the tensors; no tensor is read.

    Raises:
        DataError: the file is absent, or not a safetensors file.
    """
    return _read(path, "metadata")


def describes_itself(path: Path) -> bool:
    """Whether a file is a checkpoint of farther, which names its classes, and no state dict."""
    if path.suffix != ".safetensors":
        return False
    try:
        return "format" in read_metadata(path)
    except DataError:  # absent or damaged, which is said when it is opened
        return True


def read_tensors(path: str | Path) -> dict[str, Tensor]:
    """All tensors by name, in the types they were written in, on the CPU; errors as in `read_metadata`."""
    return _read(path, "tensors")


def json_field(path: str | Path, metadata: Mapping[str, str], name: str) -> Any:
    """The value of a field of the metadata, which is JSON.

    Raises:
        DataError: the field is missing, or is not JSON; names the file `path`.
    """
    try:
        text = metadata[name]
    except KeyError:
        raise DataError(
            "the field is missing from the checkpoint's metadata", file=path, field=name
        ) from None
    return parse_json(text, path, field=name)


def refuse_format(path: str | Path, metadata: Mapping[str, str], kind: str) -> None:
    """Refuses a file that `write_checkpoint` did not write in this format."""
    if metadata.get("format") != kind:
        problem = f"expected {kind!r}, found {shorten(metadata.get('format'))}: not a checkpoint that farther wrote"
        raise DataError(problem, file=path, field="format")


def as_names(path: str | Path, found: Any) -> tuple[str, ...]:
    """Names of classes, from a checkpoint's field "classes"."""
    if (
        not isinstance(found, list | tuple)
        or not found
        or not all(isinstance(name, str) for name in found)
    ):
        raise DataError(
            f"expected a list of names, found {shorten(found)}", file=path, field="classes"
        )
    if len(set(found)) < len(found):
        raise DataError(f"a class is listed twice in {shorten(found)}", file=path, field="classes")
    return tuple(found)


def as_pixels(path: str | Path, found: Any, field: str) -> int:
    """A number of pixels, from a checkpoint's field."""
    if not isinstance(found, int) or isinstance(found, bool) or not 1 <= found <= MOST_PIXELS:
        problem = f"expected a number of pixels, 1 to {MOST_PIXELS:,}, found {shorten(found)}"
        raise DataError(problem, file=path, field=field)
    return found


def floats(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same tensors, floating-point ones in float32."""
    return {name: t.float() if t.is_floating_point() else t for name, t in tensors.items()}


def _half(tensor: Tensor) -> Tensor:
    """A copy in half precision, unless it holds integers or numbers too large for that."""
    tensor = tensor.detach().cpu()
    half = tensor.half() if tensor.is_floating_point() else tensor
    return (half if torch.isfinite(half).all() else tensor).clone(
        memory_format=torch.contiguous_format
    )


def _with_sorted_metadata(content: bytes) -> bytes:
    """The bytes of a safetensors file, put in order: the library leaves the order of the metadata to chance."""
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + content[start:]


def _read(path: str | Path, part: str) -> dict[str, Any]:
    regular_file(path)
    try:
        with safe_open(path, framework="pt") as file:
            if part == "metadata":
                return file.metadata() or {}
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
    except (SafetensorError, OSError, ValueError, TypeError, KeyError, RuntimeError) as error:
        raise DataError(f"not a readable safetensors file: {error}", file=path) from None


def read_weights(path: str | Path) -> dict[str, Tensor]:
    """The state dict of a safetensors or PyTorch file: the whole of it, or a part with one of the names of `PARTS`.

    Raises:
        DataError: the file is absent or cannot be read, or holds no weights.
    """
    if Path(path).suffix == ".safetensors":
        return read_tensors(path)
    state = read_torch_file(path)
    for part in PARTS:
        if isinstance(state, dict) and isinstance(state.get(part), dict):
            state = state[part]
            break
    items = state.items() if isinstance(state, dict) else [("", state)]
    tensors = {name: torch.from_numpy(v) if isinstance(v, np.ndarray) else v for name, v in items}
    if not isinstance(state, dict) or not all(
        isinstance(value, Tensor) for value in tensors.values()
    ):
        raise DataError("expected a state dict: a dictionary of tensors by name", file=path)
    return tensors


def read_torch_file(path: str | Path) -> Any:
    """Content of a file that `torch.save` wrote: containers, text, numbers, tensors and arrays; runs nothing it names.

    Raises:
        DataError: the file is absent or damaged, `torch.save` did not write it, or it names
            anything else.
    """
    regular_file(path)
    try:
        with torch.serialization.safe_globals(SAFE_GLOBALS):
            # Mapped where the format allows it, so that reading only the names reads no weights.
            return torch.load(
                path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path)
            )
    except Exception as error:  # torch.load raises whatever its reader met
        raise DataError(_problem(path, error), file=path) from None


def _problem(path: str | Path, error: Exception) -> str:
    """Why a file was not read, in one line; PyTorch's message advises to run the code that the file names."""
    try:
        named = torch.serialization.get_unsafe_globals_in_checkpoint(path)
    except Exception:  # it reads fewer formats than torch.load
        named = re.findall(r"GLOBAL (\S+)", str(error))
    known = {entry[1] for entry in SAFE_GLOBALS if isinstance(entry, tuple)}
    known |= {f"{entry.__module__}.{entry.__qualname__}" for entry in (Namespace, SimpleNamespace)}
    strange = [name for name in named if name not in known and not name.startswith("numpy.dtype")]
    if strange:
        what = f"it names {', '.join(strange[:5])}, which is not run. Load it where it was written"
        return f"not a weights-only PyTorch file: {what}, and save the state dict alone with torch.save"
    return "not a weights-only PyTorch file: damaged, or not written by torch.save"


def fill(network: nn.Module, path: str | Path, weights: Mapping[str, Tensor], what: str) -> None:
    """Gives a network exactly its weights; `path` and `what` name file and network in messages.

    Raises:
        DataError: weights are missing, unexpected, of another shape, not finite or not dense: says
            which.
    """
    for name, tensor in weights.items():
        if (
            tensor.layout != torch.strided
            or tensor.is_meta
            or tensor.is_quantized
            or tensor.is_complex()
        ):
            problem = f"expected a dense tensor of real numbers, found {tensor.layout}, {tensor.dtype}, {tensor.device}"
            raise DataError(problem, file=path, field=name)
        if not torch.isfinite(tensor).all():
            raise DataError("holds numbers that are not finite", file=path, field=name)
    shapes = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}
    refuse_misfit(path, what, {"of another shape": other_shapes(shapes, weights)})
    # Not strict, and checked afterwards: torchvision renames the layers of its older checkpoints
    # while it loads.
    loaded = network.load_state_dict(floats(weights), strict=False)
    refuse_misfit(
        path, what, {"missing": loaded.missing_keys, "unexpected": loaded.unexpected_keys}
    )


def other_shapes(
    expected: Mapping[str, tuple[int, ...]], weights: Mapping[str, Tensor]
) -> list[str]:
    """Names of the weights that have another shape than expected, with both shapes."""
    found = {name: tuple(weights[name].shape) for name in expected if name in weights}
    return [
        f"{name} {found[name]} instead of {shape}"
        for name, shape in expected.items()
        if found.get(name, shape) != shape
    ]


def refuse_misfit(
    path: str | Path, what: str, problems: Mapping[str, Sequence[str]], most: int = 8
) -> None:
    """Raises a DataError that lists the weights that do not fit, up to `most` per kind of problem, if there are any."""
    listed = [f"{kind}: {_listed(names, most)}" for kind, names in problems.items() if names]
    if listed:
        raise DataError(f"the weights do not fit {what}. {'; '.join(listed)}", file=path)


def _listed(names: Sequence[str], most: int) -> str:
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")
