"""Weights of the `transformers` library, loaded into its networks; those that do not fit are refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import torch
from transformers import PreTrainedModel

from farther.detectors.networks.detr import quiet
from farther.detectors.networks.weights import refuse_misfit
from farther.errors import DataError

#: Which weights may fail to fit: those of another shape start at random with "class heads".
Tolerated = Literal["nothing", "class heads"]


def load_pretrained(
    network_class: Any,
    folder: Path | None,
    file: Path,
    *,
    tolerated: Tolerated = "nothing",
    what: str = "",
    **given: Any,
) -> PreTrainedModel:
    """A network of transformers in float32, in evaluation mode.

    Args:
        network_class: Its class, or one of transformers' Auto classes.
        folder: Where configuration and safetensors are; None where both are `given`, as `config` and `state_dict`.
        file: Is named in errors.
        tolerated: "class heads" lets weights whose shape depends on the number of classes or queries start at random.
        what: Name of the network in errors; its class by default.
        given: Further arguments of transformers' `from_pretrained`.

    Raises:
        DataError: transformers cannot load it, or weights are missing, unexpected or of another shape.
    """
    try:
        with quiet():
            network, info = network_class.from_pretrained(
                folder,
                dtype=torch.float32,
                ignore_mismatched_sizes=True,
                output_loading_info=True,
                local_files_only=True,
                use_safetensors=True,
                trust_remote_code=False,
                **given,
            )
    except MemoryError:
        raise
    except Exception as error:  # each network raises different errors
        raise DataError(f"transformers cannot load this network: {str(error).strip()[:400]}", file=file) from None
    shapes = {name: f"{name} {tuple(found)} instead of {tuple(to)}" for name, found, to in info["mismatched_keys"]}
    missing = set(info["missing_keys"])
    if tolerated == "class heads":
        missing, shapes = missing - set(shapes), {}
    problems = {
        "missing": sorted(missing),
        "unexpected": sorted(info["unexpected_keys"]),
        "of another shape": sorted(shapes.values()),
        "in error": [str(error) for error in info.get("error_msgs", [])],
    }
    refuse_misfit(file, what or type(network).__name__, problems)
    return network.eval()
