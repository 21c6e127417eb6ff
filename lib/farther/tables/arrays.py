"""Arrays of safetensors files.

Numbers of types that NumPy does not have become float32.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from safetensors import deserialize, safe_open
from safetensors.numpy import load_file

from farther.errors import DataError, shorten
from farther.tables.files import regular_file


def read_arrays(path: str | Path) -> dict[str, np.ndarray]:
    """The arrays of a safetensors file, by name; those in bfloat16 in float32.

    Raises:
        DataError: the file is absent or damaged, or holds a type that NumPy does not have.
    """
    regular_file(path)
    try:
        with safe_open(path, "numpy") as file:
            names = list(file.keys())
            types = {name: file.get_slice(name).get_dtype() for name in names}
        if "BF16" in types.values():
            return _with_bfloat16(Path(path).read_bytes(), types)
        return load_file(path)
    except MemoryError:
        raise
    except Exception as error:  # SafetensorError, KeyError, ValueError, TypeError, …: damaged
        problem = f"not a readable safetensors file: {shorten(str(error))}"
        raise DataError(problem, file=path) from None


def _with_bfloat16(content: bytes, types: dict[str, str]) -> dict[str, np.ndarray]:
    """The arrays of a file's content.

    A bfloat16 is the upper half of a float32.

    Args:
        content: The file's bytes.
        types: The type of each array, as the format calls it.
    """
    numpy_types = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4"}
    arrays = {}
    for name, tensor in deserialize(content):
        if types[name] == "BF16":
            upper = np.frombuffer(tensor["data"], "<u2").astype("<u4")
            values = (upper << 16).view("<f4")
        elif types[name] in numpy_types:
            values = np.frombuffer(tensor["data"], numpy_types[types[name]])
        else:
            raise ValueError(f"{name} is of type {types[name]}")
        arrays[name] = values.reshape(tensor["shape"]).copy()
    return arrays
