"""Files of arrays (safetensors)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from farther.errors import DataError, shorten
from farther.tables.files import regular_file


def read_arrays(path: str | Path) -> dict[str, np.ndarray]:
    """The arrays of a safetensors file, by name.

    Raises:
        DataError: the file is absent or damaged, or holds a type that NumPy does not have.
    """
    regular_file(path)
    try:
        return load_file(path)
    except MemoryError:
        raise
    except Exception as error:  # the library meets damage with SafetensorError, KeyError, ValueError, TypeError, …
        raise DataError(f"not a readable safetensors file: {shorten(str(error))}", file=path) from None
