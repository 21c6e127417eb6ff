"""Files that `torch.save` wrote, read without running anything that they name."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from farther.errors import DataError

#: The functions that a pickle names to make a number and an array of NumPy's.
_make_number, _make_array = np.float64(0).__reduce__()[0], np.zeros(1).__reduce__()[0]

#: What may be made of a file besides what PyTorch makes anyway: the numbers and arrays that Detectron2's trainer keeps
#: beside the weights. The module of the two functions had another name before NumPy 2.
NUMPY_GLOBALS: list[Any] = [
    *((_make_number, f"numpy.{core}.multiarray.scalar") for core in ("core", "_core")),
    *((_make_array, f"numpy.{core}.multiarray._reconstruct") for core in ("core", "_core")),
    np.ndarray,
    np.dtype,
    *(type(np.dtype(name)) for name in ("float16", "float32", "float64", "int32", "int64", "uint8", "bool")),
]


def read_torch_file(path: str | Path) -> Any:
    """What a file holds: containers, text, numbers, tensors and arrays, on the CPU.

    Raises:
        DataError: the file is absent or damaged, `torch.save` did not write it, or it names anything else.
    """
    if not Path(path).is_file():
        raise DataError("the file does not exist", file=path)
    packed = zipfile.is_zipfile(path)
    try:
        with torch.serialization.safe_globals(NUMPY_GLOBALS):
            # Mapped where the format allows it: who looks at the names only reads no weights.
            return torch.load(path, map_location="cpu", weights_only=True, mmap=packed)
    except Exception as error:  # torch.load raises whatever its reader met
        raise DataError(_problem(path, error), file=path) from None


def _problem(path: str | Path, error: Exception) -> str:
    """Why a file was not read, in one line; PyTorch's own text would have the user run whatever the file names."""
    try:
        named = torch.serialization.get_unsafe_globals_in_checkpoint(path)
    except Exception:  # it reads fewer formats than torch.load
        named = re.findall(r"GLOBAL (\S+)", str(error))
    known = {entry[1] for entry in NUMPY_GLOBALS if isinstance(entry, tuple)}
    strange = [name for name in named if name not in known and not name.startswith("numpy.dtype")]
    if strange:
        what = f"it names {', '.join(strange[:5])}, which is not run. Load it where it was written"
        return f"not a PyTorch file of weights alone: {what}, and save the state dict alone with torch.save"
    return "not a PyTorch file of weights alone: damaged, or another program than torch.save wrote it"
