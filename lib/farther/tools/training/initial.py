"""Weights to start training from: of a whole detector, or of its backbone alone."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from farther.detectors.networks.architectures import Blueprint, architecture_of, build_network
from farther.detectors.networks.checkpoint import read_weights
from farther.detectors.networks.safetensors_file import floats
from farther.errors import DataError, ParameterError

#: Where a classifier's layers stand in a detector.
BODY = "backbone.body."


def initial_weights(path: Path | None, blueprint: Blueprint) -> dict[str, Tensor] | None:
    """Those weights of a file that fit a network; a last layer for other classes, say, does not.

    Args:
        path: A checkpoint of a detector, or of the classifier that its backbone was (torchvision's `resnet50`).

    Returns:
        Weights by the network's names; None without a file.

    Raises:
        DataError: the file cannot be read, or holds nothing that fits the backbone.
        ParameterError: there is no file, but parts of this architecture never learn.
    """
    if path is None:
        if architecture_of(blueprint).is_frozen:
            problem = "its first layers never learn, so it must start from a checkpoint or its backbone's"
            raise ParameterError(f"training {blueprint.architecture!r}: parameter 'initial_weights': {problem}")
        return None
    network = build_network(blueprint)
    expected = network.state_dict()
    found = floats(read_weights(path))
    if not any(name.startswith("backbone.") for name in found):
        found = {BODY + name: tensor for name, tensor in found.items()}
    fitting = {n: t for n, t in found.items() if n not in expected or t.shape == expected[n].shape}
    loaded = network.load_state_dict(fitting, strict=False)
    missing = [name for name in loaded.missing_keys if name.startswith(BODY)]
    if missing:
        problem = (
            f"does not hold the backbone of {blueprint.architecture!r}: {missing[0]} is missing or of another shape"
        )
        raise DataError(problem, file=path)
    return {n: t for n, t in network.state_dict().items() if n not in loaded.missing_keys}
