"""Bounds of what a checkpoint may describe, checked before a network is built, and the errors of running it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from farther.errors import DataError, FartherError, shorten

if TYPE_CHECKING:
    from torch import nn

#: Largest number of layers (of a stack, or of repeats of one), side of an image in pixels, and
#: other number.
MOST_LAYERS, MOST_PIXELS, MOST = 256, 4_096, 2**22

#: Longest list of a description; classes are a mapping.
MOST_VALUES = 10_000

#: Names of fields that hold numbers of layers.
LAYERS = re.compile(r"layers|levels|depth|stages|blocks|repeats")

#: Values that a network may have beyond the bytes of its files: buffers that are computed.
COMPUTED = 2**22


def check_description(path: str | Path, content: Any, most: float = MOST, field: str = "") -> None:
    """Refuses a description with a number above `most`, above `MOST_LAYERS` where layers are counted, or a long list.

    Raises:
        DataError: names file and field.
    """
    inner: list[tuple[str, Any]] = []
    if isinstance(content, dict):
        inner = [(f"{field}.{key}" if field else str(key), value) for key, value in content.items()]
    elif isinstance(content, list):
        if len(content) > MOST_VALUES:
            raise DataError(
                f"{len(content):,} values; at most {MOST_VALUES:,} are read", file=path, field=field
            )
        inner = [(f"{field}[{number}]", value) for number, value in enumerate(content)]
    elif isinstance(content, (int, float)) and not isinstance(content, bool):
        limit = min(most, MOST_LAYERS) if LAYERS.search(field.rpartition(".")[2]) else most
        if not abs(content) <= limit:  # NaN, too
            raise DataError(
                f"expected at most {limit:,}, found {shorten(content)}", file=path, field=field
            )
    for name, value in inner:
        check_description(path, value, most, name)


def refuse_larger(
    path: str | Path, files: Sequence[str | Path], build: Callable[[], nn.Module]
) -> nn.Module:
    """Refuses the description of a network that has more values than its files have bytes.

    Returns:
        The network on PyTorch's meta device, where it is first built without memory for its values.

    Raises:
        DataError: it is larger, or the library cannot build it; names the file `path`.
    """
    import torch

    with network_errors(path, "built"), torch.device("meta"):
        network = build()
    count = sum(tensor.numel() for tensor in chain(network.parameters(), network.buffers()))
    size = sum(Path(file).stat().st_size for file in files)
    if count > size + COMPUTED:
        problem = f"describes a network of {count:,} values, but its weights have {size:,} bytes"
        raise DataError(problem, file=path)
    return network


@contextmanager
def network_errors(path: str | Path, what: str = "run") -> Iterator[None]:
    """Turns what a library raises over the network or the processor of a file into a DataError that names the file.

    Libraries meet a wrong description or wrong weights with nearly any error.
    """
    try:
        yield
    except DataError as error:
        if error.file is not None:
            raise
        raise DataError(error.problem, file=path, row=error.row, field=error.field) from error
    except (FartherError, MemoryError):
        raise
    except Exception as error:
        if type(error).__name__ == "OutOfMemoryError":  # PyTorch's, which this module does not load
            raise
        text = f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"
        raise DataError(
            f"the network or its processor cannot be {what}: {text}", file=path
        ) from error
