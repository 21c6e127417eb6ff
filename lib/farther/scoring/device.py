"""Where scores are computed: section `scoring` of params.yaml.

    scoring: {device: cpu}

On the CPU, scores are NumPy's, and PyTorch is not imported. On a GPU, the methods with a form in
PyTorch are computed there in float64, in blocks of rows that fit into its memory; the others are
computed on the CPU. Both give the same scores up to rounding.
"""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from pydantic.dataclasses import dataclass

from farther.errors import ParameterError
from farther.naming.registry import STRICT, Parameters
from farther.processes import has_gpu

#: Devices that a user may write.
Device = Literal["auto", "cpu", "cuda"]


@dataclass(config=STRICT, kw_only=True)
class ScoringSettings(Parameters):
    """Where scores are computed: section `scoring` of params.yaml.

    Both give the same scores up to rounding.

    Args:
        device: "cpu"; "cuda", an NVIDIA or AMD GPU; or "auto", such a GPU if PyTorch can use one,
            and else the CPU.
    """

    device: Device = field(default="cpu")


def torch_device(device: Device) -> str | None:
    """PyTorch's name of the device that scores are computed on; None for NumPy on the CPU.

    PyTorch is imported only where there may be a GPU.

    Raises:
        ParameterError: "cuda" was asked for, and PyTorch can use no such GPU here.
    """
    if device == "cpu":
        return None
    if has_gpu():
        # PyTorch takes seconds.
        import torch

        if torch.cuda.is_available():
            return "cuda"
    if device == "cuda":
        raise ParameterError(
            "scoring.device: PyTorch can use no GPU with CUDA or ROCm here: write cpu or auto"
        )
    return None
