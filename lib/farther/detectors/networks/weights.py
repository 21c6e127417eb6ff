"""Files of weights: farther's safetensors files, PyTorch's files, and their fit to a network."""

from __future__ import annotations

import json
import re
import zipfile
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from farther.errors import DataError, shorten
from farther.images.bounds import MOST_PIXELS
from farther.tables.documents import parse_json
from farther.tables.files import regular_file
from farther.tables.writing import write_aside

#: Keys under which training programs store the state dict: PyTorch Lightning, torchvision's scripts
#: and Detectron2, and others; the averages of weights (EMA) count only where there are no others.
STATE_DICT_KEYS = (
    "state_dict",
    "model",
    "model_state_dict",
    "net",
    "network",
    "weights",
    "module",
    "model_ema",
    "ema",
    "ema_state_dict",
    "state_dict_ema",
    "ema_model",
)
#: Largest number of dictionaries around the state dict.
NESTED = 3

#: Modules that PyTorch's wrappers put between the names of a weight's modules: those of
#: torch.compile, FSDP and activation checkpointing.
WRAPPER_MODULES = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")

#: Last layers of torchvision's detectors: the weight whose rows are the logits.
BOX_PREDICTOR = "roi_heads.box_predictor.cls_score.weight"
DENSE_HEAD = "head.classification_head.cls_logits.weight"
SSD_HEAD = "head.classification_head.module_list.0.weight"
SSDLITE_HEAD = "head.classification_head.module_list.0.1.weight"
LAST_LAYERS = (BOX_PREDICTOR, DENSE_HEAD, SSD_HEAD, SSDLITE_HEAD)

#: What is stored under the name of a weight: the weight, or something else.
Value = TypeVar("Value")

#: Most names of weights that a message lists per kind of problem.
LISTED_WEIGHTS = 8

#: PyTorch's functions by which the constructors of layers draw their weights.
DRAWING = (
    Tensor.normal_,
    Tensor.uniform_,
    nn.init.kaiming_uniform_,
    nn.init.normal_,
    nn.init.uniform_,
)


def _path_text(*parts: str) -> str:
    """Replacement for a path in a file: its text."""
    return "/".join(parts).replace("//", "/")


#: The functions that a pickle names for a NumPy number and a NumPy array.
_make_number = np.float64(0).__reduce__()[0]
_make_array = np.zeros(1).__reduce__()[0]

#: Types of the numbers in NumPy arrays beside the weights.
_DTYPES = ("float16", "float32", "float64", "int32", "int64", "uint8", "bool")

#: Classes and functions that a PyTorch file may name besides PyTorch's: those of numbers and
#: arrays, which Detectron2's trainer stores beside the weights (the module of the two functions had
#: another name before NumPy 2), and the namespaces in which DETR's and rfdetr's store their
#: arguments.
SAFE_GLOBALS: list[Any] = [
    (_make_number, "numpy.core.multiarray.scalar"),
    (_make_number, "numpy._core.multiarray.scalar"),
    (_make_array, "numpy.core.multiarray._reconstruct"),
    (_make_array, "numpy._core.multiarray._reconstruct"),
    np.ndarray,
    np.dtype,
    *(type(np.dtype(name)) for name in _DTYPES),
    Namespace,
    SimpleNamespace,
    (_path_text, "pathlib.PosixPath"),
    (_path_text, "pathlib._local.PosixPath"),
]


def write_tensors(
    path: str | Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]
) -> None:
    """Writes tensors, in half precision if their values fit, and text beside them.

    Replaces the file.

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
    """Writes a safetensors file: a state dict, its network's blueprint, and notes.

    Args:
        path: The file.
        state: The state dict.
        kind: Format of the file, such as "farther.yolo".
        blueprint: A dataclass of text, numbers, lists and dicts; fields that are not text are
            written as JSON.
        notes: Further text by name, such as the recipe of the training.
    """
    metadata = dict(notes or {})
    metadata["format"] = kind
    for name, value in vars(blueprint).items():
        metadata[name] = value if isinstance(value, str) else json.dumps(value)
    write_tensors(path, state, metadata)


def read_metadata(path: str | Path) -> dict[str, str]:
    """The text beside the tensors of a safetensors file; no tensor is read.

    Raises:
        DataError: the file is absent, or not a safetensors file.
    """
    with _opened(path) as file:
        return file.metadata() or {}


def describes_itself(path: Path) -> bool:
    """True if a file is a checkpoint of farther, which names its classes; not a state dict."""
    if path.suffix.lower() != ".safetensors":
        return False
    try:
        return "format" in read_metadata(path)
    except DataError:  # absent or damaged, which is reported when the weights are read
        return True


def read_tensors(path: str | Path) -> dict[str, Tensor]:
    """All tensors of a safetensors file by name, in their stored types, on the CPU.

    Raises:
        DataError: the file is absent, or not a safetensors file.
    """
    with _opened(path) as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)


def read_names(path: str | Path) -> list[str]:
    """The names of the tensors of a safetensors file; no tensor is read.

    Raises:
        DataError: the file is absent, or not a safetensors file.
    """
    with _opened(path) as file:
        return list(file.keys())


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
    stored = metadata.get("format")
    if stored != kind:
        problem = f"expected {kind!r}, found {shorten(stored)}: not a checkpoint that farther wrote"
        raise DataError(problem, file=path, field="format")


def as_names(path: str | Path, value: Any) -> tuple[str, ...]:
    """Names of classes, from the value of a checkpoint's field "classes".

    Raises:
        DataError: the value is not a list of different names.
    """
    is_list = isinstance(value, list | tuple) and len(value) > 0
    if not is_list or not all(isinstance(name, str) for name in value):
        raise DataError(
            f"expected a list of names, found {shorten(value)}", file=path, field="classes"
        )
    if len(set(value)) < len(value):
        raise DataError(f"a class is listed twice in {shorten(value)}", file=path, field="classes")
    return tuple(value)


def as_pixels(path: str | Path, value: Any, field: str) -> int:
    """A number of pixels, from the value of a checkpoint's field.

    Raises:
        DataError: the value is not an integer from 1 to `MOST_PIXELS`.
    """
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MOST_PIXELS:
        problem = f"expected a number of pixels, 1 to {MOST_PIXELS:,}, found {shorten(value)}"
        raise DataError(problem, file=path, field=field)
    return value


def as_float32(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same tensors, floating-point ones in float32."""
    converted = {}
    for name, tensor in tensors.items():
        converted[name] = tensor.float() if tensor.is_floating_point() else tensor
    return converted


def _half(tensor: Tensor) -> Tensor:
    """A copy in half precision, unless it holds integers or numbers too large for that."""
    tensor = tensor.detach().cpu()
    if tensor.is_floating_point():
        half = tensor.half()
        if torch.isfinite(half).all():
            tensor = half
    return tensor.clone(memory_format=torch.contiguous_format)


def _with_sorted_metadata(content: bytes) -> bytes:
    """The bytes of a safetensors file with sorted metadata, whose order the library leaves random.

    The file begins with the length of its header (8 bytes). The header is JSON, padded to a
    multiple of 8 bytes.
    """
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + content[start:]


@contextmanager
def _opened(path: str | Path) -> Iterator[Any]:
    """An open safetensors file; whatever is raised in the block becomes a DataError."""
    regular_file(path)
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except (SafetensorError, OSError, ValueError, TypeError, KeyError, RuntimeError) as error:
        raise DataError(f"not a readable safetensors file: {error}", file=path) from None


def read_weights(path: str | Path, own: Iterable[str] = ()) -> dict[str, Tensor]:
    """The state dict of a safetensors or PyTorch file, by the network's own names.

    In a PyTorch file it may be the whole content, or stored under one of `STATE_DICT_KEYS`.

    Args:
        path: The file.
        own: See `unwrapped`.

    Raises:
        DataError: the file is absent or cannot be read, holds no weights, or see `unwrapped`.
    """
    if Path(path).suffix.lower() == ".safetensors":
        return unwrapped(path, read_tensors(path), own)
    state = _state_dict(read_torch_file(path), NESTED)
    if state is None:
        raise DataError("expected a state dict: a dictionary of tensors by name", file=path)
    return unwrapped(path, state, own)


def unwrapped(
    path: str | Path, weights: Mapping[str, Value], own: Iterable[str]
) -> dict[str, Value]:
    """The weights of a network by its own names, without the names of wrappers around it.

    Wrappers are DataParallel (`module.`), torch.compile (`_orig_mod.`), PyTorch Lightning's modules
    (`model.`) and any others. Where the network's weights have a prefix, weights without it are not
    the network's, such as the buffers of a criterion, and are left out.

    Args:
        path: The file, for messages.
        weights: All weights of the file by name, or something else for each.
        own: Names that the network itself gives to weights: all of them, or some that only its
            network can have.

    Raises:
        DataError: as many of the network's names occur under two prefixes, or a name both with and
            without the module of a wrapper.
    """
    prefix = _common_prefix(path, weights, own)
    by_own_name: dict[str, Value] = {}
    for name, value in weights.items():
        if not name.startswith(prefix):
            continue
        own_name = _without_wrapper_modules(name.removeprefix(prefix))
        if own_name in by_own_name:
            raise DataError(
                f"holds {shorten(own_name)} twice, with and without the module of a wrapper, as in "
                f"{shorten(name)}. Save the state dict of one of the two networks",
                file=path,
            )
        by_own_name[own_name] = value
    return by_own_name


def _common_prefix(path: str | Path, names: Iterable[str], own: Iterable[str]) -> str:
    """The prefix, "" or ending in a point, under which most of a network's names occur.

    Modules of PyTorch's wrappers (`_orig_mod`) at the beginning of a name belong to its prefix.

    Args:
        path, own: See `unwrapped`.
        names: Names of the weights of a file.

    Raises:
        DataError: see `unwrapped`.
    """
    own_names = set(own)
    count_by_prefix = Counter[str]()
    for name in names:
        start = 0
        while True:
            end_of_name = name[start:]
            is_wrapped = end_of_name.partition(".")[0] in WRAPPER_MODULES
            if not is_wrapped and _without_wrapper_modules(end_of_name) in own_names:
                count_by_prefix[name[:start]] += 1
            start = name.find(".", start) + 1
            if start == 0:
                break
    most = max(count_by_prefix.values(), default=0)
    prefixes = sorted(prefix for prefix, count in count_by_prefix.items() if count == most)
    if not prefixes or "" in prefixes:
        return ""
    if len(prefixes) > 1:
        listed = ", ".join(repr(prefix) for prefix in prefixes)
        raise DataError(
            f"holds several networks: under {listed}. Save the state dict of one of them",
            file=path,
        )
    return prefixes[0]


def _without_wrapper_modules(name: str) -> str:
    """The name of a weight without the modules of PyTorch's wrappers."""
    for module in WRAPPER_MODULES:
        if module in name:
            parts = name.split(".")
            name = ".".join(part for part in parts if part != module)
    return name


def _state_dict(content: Any, nested: int) -> dict[str, Tensor] | None:
    """The state dict in the content of a PyTorch file; None where there is none.

    Args:
        content: The content, or a dictionary in it.
        nested: Largest number of dictionaries that may be around the state dict.
    """
    if not isinstance(content, dict):
        return None
    if nested:
        for key in STATE_DICT_KEYS:
            state = _state_dict(content.get(key), nested - 1)
            if state:
                return state

    state = {}
    for name, value in content.items():
        tensor = torch.from_numpy(value) if isinstance(value, np.ndarray) else value
        if not isinstance(tensor, Tensor) or not isinstance(name, str):
            return None
        state[name] = tensor
    return state


def read_torch_file(path: str | Path) -> Any:
    """Content of a file that `torch.save` wrote; runs nothing that it names.

    It may hold containers, text, numbers, tensors and arrays.

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
    """The reason why a file was not read, in one line.

    PyTorch's message advises to run the code that the file names.
    """
    unknown = [name for name in _named_globals(path, error) if not _is_safe(name)]
    if unknown:
        problem = f"it names {', '.join(unknown[:5])}, which is not run"
        advice = "Load it where it was written, and save the state dict alone with torch.save"
        return f"not a weights-only PyTorch file: {problem}. {advice}"
    return "not a weights-only PyTorch file: damaged, or not written by torch.save"


def _named_globals(path: str | Path, error: Exception) -> list[str]:
    """Names of the classes and functions that PyTorch refused to load from a file."""
    try:
        return torch.serialization.get_unsafe_globals_in_checkpoint(path)
    except Exception:  # it reads fewer formats than torch.load
        return re.findall(r"GLOBAL (\S+)", str(error))


def _is_safe(name: str) -> bool:
    """True for the full name of one of `SAFE_GLOBALS`."""
    if name.startswith("numpy.dtype"):
        return True
    for entry in SAFE_GLOBALS:
        if isinstance(entry, tuple) and entry[1] == name:
            return True
    namespaces = (Namespace, SimpleNamespace)
    return name in [f"{entry.__module__}.{entry.__qualname__}" for entry in namespaces]


class BlankWeights(TorchFunctionMode):
    """A context in which the networks that are built get zeros instead of random weights.

    To draw weights that are overwritten takes longer than to load a network. What `load_weights`
    has loaded is free of them: it refuses a file that lacks any.
    """

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Calls a function of PyTorch, unless it draws numbers into its first argument."""
        kwargs = kwargs or {}
        if function not in DRAWING:
            return function(*args, **kwargs)
        tensor: Tensor = args[0] if args else kwargs["tensor"]
        with torch.no_grad():
            return tensor.zero_()


def load_weights(
    network: nn.Module, path: str | Path, weights: Mapping[str, Tensor], description: str
) -> None:
    """Loads exactly a network's weights.

    Args:
        network: The network.
        path: The file of the weights, for messages.
        weights: All weights by name.
        description: Of the network, for messages.

    Raises:
        DataError: weights are missing, unexpected, of another shape, not finite or not dense: says
            which.
    """
    for name, tensor in weights.items():
        _check_dense(path, name, tensor)
        if not torch.isfinite(tensor).all():
            raise DataError("holds numbers that are not finite", file=path, field=name)

    shapes = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}
    refuse_misfit(path, description, {"of another shape": other_shapes(shapes, weights)})

    # Not strict, and checked afterwards: torchvision renames the layers of its older checkpoints
    # while it loads.
    loaded = network.load_state_dict(as_float32(weights), strict=False)
    problems = {"missing": loaded.missing_keys, "unexpected": loaded.unexpected_keys}
    refuse_misfit(path, description, problems)


def _check_dense(path: str | Path, name: str, tensor: Tensor) -> None:
    """Refuses a tensor that is sparse, without memory, quantised or complex."""
    is_dense = tensor.layout == torch.strided and not tensor.is_meta
    if is_dense and not tensor.is_quantized and not tensor.is_complex():
        return
    kind = f"{tensor.layout}, {tensor.dtype}, {tensor.device}"
    problem = f"expected a dense tensor of real numbers, found {kind}"
    raise DataError(problem, file=path, field=name)


def other_shapes(
    expected: Mapping[str, tuple[int, ...]], weights: Mapping[str, Tensor]
) -> list[str]:
    """Names of the weights that have another shape than expected, with both shapes."""
    differing = []
    for name, shape in expected.items():
        if name not in weights:
            continue
        stored = tuple(weights[name].shape)
        if stored != shape:
            differing.append(f"{name} {stored} instead of {shape}")
    return differing


def refuse_misfit(
    path: str | Path,
    description: str,
    problems: Mapping[str, Sequence[str]],
    limit: int = LISTED_WEIGHTS,
) -> None:
    """Raises a DataError that lists the weights that do not fit a network, if there are any.

    Args:
        path: The file of the weights.
        description: Of the network.
        problems: Names of weights by the kind of problem.
        limit: Largest number of names that are listed per kind.
    """
    listed = []
    for kind, names in problems.items():
        if not names:
            continue
        text = f"{kind}: {', '.join(names[:limit])}"
        if len(names) > limit:
            text += f" and {len(names) - limit} more"
        listed.append(text)
    if listed:
        raise DataError(f"the weights do not fit {description}. {'; '.join(listed)}", file=path)
