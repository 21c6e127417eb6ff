"""Initial weights, random sizes and batches of images for trainers of torchvision's detectors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor
from torchvision.models.detection import FasterRCNN, RetinaNet
from torchvision.models.detection.image_list import ImageList

from farther.detectors.networks.detection import as_floats
from farther.detectors.networks.weights import as_float32, read_weights
from farther.errors import DataError, ParameterError
from farther_training.multi_scale import ScaleRandomly
from farther_training.recipe import DetectorRecipe
from farther_training.run import Change, Run, make_optimizer
from farther_training.samples import Sample
from farther_training.trainers import Task

#: Prefix of a classifier's layers in a detector.
BODY = "backbone.body."

#: Boxes, labels and, for Mask R-CNN, masks of an image.
Target = dict[str, Tensor]

DetectorNetwork = TypeVar("DetectorNetwork", FasterRCNN, RetinaNet)
AnyDetectorRecipe = TypeVar("AnyDetectorRecipe", bound=DetectorRecipe)


class DetectorRun(Run[DetectorNetwork, AnyDetectorRecipe]):
    """A training run of one of torchvision's detectors; see `Run`."""

    def __init__(
        self, network: DetectorNetwork, recipe: AnyDetectorRecipe, task: Task, identity: str
    ):
        optimizer = make_optimizer(recipe, [(1.0, list(network.parameters()))])
        super().__init__(network, optimizer, recipe, task, identity)
        if recipe.multi_scale is not None:
            # Images are already scaled; torchvision reads this attribute in training only.
            network.transform._skip_resize = True

    def change(self) -> Change | None:
        """See `Run.change`: random sizes and crops."""
        if self.recipe.multi_scale is None:
            return None
        return ScaleRandomly(self.recipe.multi_scale)


def network_input(
    network: FasterRCNN | RetinaNet, batch: list[Sample], first_label: int
) -> tuple[ImageList, list[Target]]:
    """Images of a batch as the backbone takes them, and their boxes and labels.

    Args:
        network: Scales and normalises the images, on its device.
        batch: The samples.
        first_label: The label of the first class: 1 where column 0 is the background, else 0.
    """
    device = next(network.parameters()).device
    images = []
    targets = []
    for sample in batch:
        images.append(as_floats(sample.pixels, device))
        labels = torch.from_numpy(sample.labels).to(device) + first_label
        targets.append({"boxes": torch.from_numpy(sample.boxes).to(device), "labels": labels})
    transformed: tuple[ImageList, list[Target]] = network.transform(images, targets)
    return transformed


def fitting_weights(
    path: Path | None, network: FasterRCNN | RetinaNet, architecture: str, *, is_frozen: bool
) -> dict[str, Tensor] | None:
    """Weights of a file that fit a network; a last layer for other classes, for example, does not.

    Args:
        path: A detector's state dict, or a classifier's, whose layers become the backbone; None for
            none.
        network: The untrained network, which is filled.
        architecture: Its name, for messages.
        is_frozen: Whether its first layers never learn.

    Raises:
        ParameterError: no file is given for a network whose first layers are frozen.
        DataError: the file has no weights of the backbone.
    """
    if path is None:
        if is_frozen:
            problem = (
                "its first layers are frozen, so it must start from a checkpoint of the detector "
                "or its backbone"
            )
            raise ParameterError(
                f"training {architecture!r}: parameter 'initial_weights': {problem}"
            )
        return None
    weights = as_float32(read_weights(path))
    if not any(name.startswith("backbone.") for name in weights):
        weights = {BODY + name: tensor for name, tensor in weights.items()}
    expected = network.state_dict()
    fitting = {}
    for name, tensor in weights.items():
        if name not in expected or tensor.shape == expected[name].shape:
            fitting[name] = tensor
    missing = set(network.load_state_dict(fitting, strict=False).missing_keys)
    for name in expected:
        if name in missing and name.startswith(BODY):
            problem = (
                f"does not contain the backbone of {architecture!r}: {name} is missing or has "
                "another shape"
            )
            raise DataError(problem, file=path)

    loaded = {}
    for name, tensor in network.state_dict().items():
        if name not in missing:
            loaded[name] = tensor
    return loaded


def bytes_of(weights: Mapping[str, Tensor] | None) -> list[bytes]:
    """The values of initial weights, for the identity of a run; none where there are none."""
    if weights is None:
        return []
    return [tensor.numpy().tobytes() for tensor in weights.values()]
