"""Bounds of the description of a network, checked before it is built, and errors of networks."""

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

#: Largest number of layers of a stack, or of repeats of one.
MOST_LAYERS = 256

#: Longest side of an image in pixels.
MOST_PIXELS = 4_096

#: Largest number in all other fields.
MOST = 2**22

#: Longest list of a description; classes are a mapping.
MOST_VALUES = 10_000

#: Names of fields that hold numbers of layers.
LAYERS = re.compile(r"layers|levels|depth|stages|blocks|repeats")

#: Number of values that a network may have in addition to those of its files: computed buffers.
COMPUTED = 2**22


def check_description(
    path: str | Path, content: Any, largest: float = MOST, field: str = ""
) -> None:
    """Refuses a description with a number that is too large, or a list that is too long.

    Args:
        path: The file, for messages.
        content: The description: values in dictionaries and lists.
        largest: Largest number; `MOST_LAYERS` is the largest number of layers.
        field: Name of the described part, for messages.

    Raises:
        DataError: names file and field.
    """
    if isinstance(content, dict):
        for key, value in content.items():
            check_description(path, value, largest, f"{field}.{key}" if field else str(key))
    elif isinstance(content, list):
        if len(content) > MOST_VALUES:
            raise DataError(
                f"{len(content):,} values; at most {MOST_VALUES:,} are read", file=path, field=field
            )
        for number, value in enumerate(content):
            check_description(path, value, largest, f"{field}[{number}]")
    elif isinstance(content, (int, float)) and not isinstance(content, bool):
        key = field.rpartition(".")[2]
        limit = min(largest, MOST_LAYERS) if LAYERS.search(key) else largest
        if not abs(content) <= limit:  # also refuses NaN
            raise DataError(
                f"expected at most {limit:,}, found {shorten(content)}", file=path, field=field
            )


def refuse_larger(
    path: str | Path, files: Sequence[str | Path], build: Callable[[], nn.Module]
) -> nn.Module:
    """Builds a network without memory, and refuses one that is larger than its files of weights.

    A value in a file takes a byte or more: a network with more values than bytes (and `COMPUTED`)
    does not belong to the files, and could fill the memory.

    Args:
        path: The file of the description, for messages.
        files: The files of the weights.
        build: Builds the network.

    Returns:
        The network on PyTorch's meta device: its tensors have shapes, but no values.

    Raises:
        DataError: it is larger, or the library cannot build it; names the file `path`.
    """
    # PyTorch takes seconds.
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
def network_errors(path: str | Path, action: str = "run") -> Iterator[None]:
    """Turns a library's errors over the network or processor of a file into a DataError.

    Libraries raise nearly any error over a wrong description or wrong weights.

    Args:
        path: The file that the DataError names.
        action: Past participle of the action in the block, for messages.
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
        message = " ".join(str(error).split())[:400]
        problem = (
            f"the network or its processor cannot be {action}: {type(error).__name__}: {message}"
        )
        raise DataError(problem, file=path) from error
