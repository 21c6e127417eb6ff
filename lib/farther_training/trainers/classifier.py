"""The trainer of image classifiers: OpenOOD's ResNets for small images, with LogitNorm or outlier exposure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

from farther.detectors.classifier import (
    LENET,
    LENET_SIDE,
    ClassifierBlueprint,
    OpenOODLeNet,
    OpenOODResNet,
    load_network,
    resize_and_crop,
    save_checkpoint,
)
from farther.detectors.networks.detection import autocast
from farther.detectors.networks.weights import floats, read_weights
from farther.errors import DataError
from farther.registry import STRICT
from farther.tables.files import digest
from farther_training.recipe import ClassifierRecipe, Count, Recipe
from farther_training.run import Run, make_optimizer
from farther_training.samples import Sample, Samples, augment
from farther_training.trainers import Job, Task, Trained, count_parameters, register

Channels = tuple[float, float, float]
Counts = Annotated[tuple[Count, ...], Field(min_length=1)]


@register("classifier")
@dataclass(config=STRICT, kw_only=True)
class ClassifierJob(Job):
    """Trains an image classifier in OpenOOD's layout: a ResNet of basic blocks with a 3×3 stem, or LeNet.

    Args:
        architecture: `openood_resnet`; or `LeNet`, for images of 28 pixels, without widths and blocks.
        image_size: Pixels of the shorter side of images, which are then cropped to a square.
        widths: Channels of each stage; each but the first halves the resolution. The default is `ResNet18_32x32`.
        blocks: Blocks of each stage.
        mean, std: Of each channel, for pixels from 0 to 1.
        initial_weights: Checkpoint in the same layout; weights of another shape are initialised anew.
        recipe: Hyperparameters.
    """

    architecture: Literal["openood_resnet", "LeNet"] = "openood_resnet"
    image_size: Count = 32
    widths: Counts = (64, 128, 256, 512)
    blocks: Counts = (2, 2, 2, 2)
    mean: Channels = (0.485, 0.456, 0.406)
    std: Channels = (0.229, 0.224, 0.225)
    recipe: Annotated[ClassifierRecipe, Field(default_factory=ClassifierRecipe)]

    def __post_init__(self) -> None:
        if len(self.widths) != len(self.blocks):
            raise ValueError(f"{len(self.widths)} widths, but {len(self.blocks)} numbers of blocks")
        if self.architecture == LENET and self.image_size != LENET_SIDE:
            raise ValueError(f"{LENET} takes images of {LENET_SIDE} pixels; write image_size: {LENET_SIDE}")

    def learn(self, task: Task) -> Trained:
        """See `Job.learn`."""
        size = {"resize": self.image_size, "crop": self.image_size, "interpolation": "bilinear"}
        blueprint = ClassifierBlueprint(
            self.architecture, task.training.classes, {**size, "mean": self.mean, "std": self.std}
        )
        network = train(blueprint, task, self.recipe, (self.widths, self.blocks), self.initial_weights)
        save_checkpoint(self.weights, network.state_dict(), blueprint, task.notes)
        written = load_network(self.weights, blueprint).to(task.device)
        return Trained(
            evaluate=lambda samples: evaluate(written, samples, self.recipe, blueprint),
            parameters=count_parameters(network),
            origin=None if self.initial_weights is None else digest(self.initial_weights),
            kind=self._kind(),
            scaling=f"Images are scaled to {self.image_size} pixels on the shorter side and cropped to a square.",
            facts={**asdict(blueprint), "classes": list(blueprint.classes)},
            packages=("torchvision",),
        )

    def _kind(self) -> str:
        """Kind of network, for the card."""
        if self.architecture == LENET:
            return f"Image classifier, {LENET}"
        return f"Image classifier, ResNet with stages of {' '.join(map(str, self.widths))} channels"


class ClassifierRun(Run[nn.Module, ClassifierRecipe]):
    """A training run of a classifier; see `Run`."""

    def __init__(
        self,
        network: nn.Module,
        recipe: ClassifierRecipe,
        task: Task,
        identity: str,
        blueprint: ClassifierBlueprint,
    ):
        optimizer = make_optimizer(recipe, [(1.0, list(network.parameters()))])
        super().__init__(network, optimizer, recipe, task, identity)
        self.blueprint = blueprint

    def compute_losses(self, batch: list[Sample]) -> dict[str, Tensor]:
        """Cross-entropy, or that of LogitNorm; plus the loss of as many outliers, with outlier exposure."""
        device, exposure = self.task.device, self.recipe.outlier_exposure
        images = [sample.pixels for sample in batch]
        if exposure is not None:
            images += self._outliers(len(batch))
        with autocast(device, self.recipe.precision):
            logits = self.network(to_tensor(images, self.blueprint, device))
        logits = logits.float()
        labels = torch.tensor([sample.labels.item() for sample in batch], device=device)
        known = logits[: len(batch)]
        norm = self.recipe.logit_norm
        found = {"loss_classifier": cross_entropy(known, labels) if norm is None else norm.loss(known, labels)}
        if exposure is not None:
            found["loss_outliers"] = exposure.loss(logits[len(batch) :])
        return {"loss": torch.stack(list(found.values())).sum(), **found}

    def _outliers(self, count: int) -> list[np.ndarray]:
        """Augmented outliers of the current step."""
        assert self.recipe.outlier_exposure is not None
        random = np.random.default_rng([self.recipe.seed, self.step])
        none = np.zeros((0, 4), np.float32), np.zeros(0, np.int64)
        found = self.recipe.outlier_exposure.images(count, random)
        return [augment(Sample(image, *none), self.recipe.augmentation, random).pixels for image in found]

    def evaluate(self, samples: Samples) -> dict[str, Any]:
        """See `evaluate`."""
        return evaluate(self.averaged, samples, self.recipe, self.blueprint)

    def validate(self) -> dict[str, float]:
        """See `Run.validate`."""
        return {"val_accuracy": self.evaluate(self.task.validation)["accuracy"]}


def train(
    blueprint: ClassifierBlueprint,
    task: Task,
    recipe: ClassifierRecipe,
    shape: tuple[Sequence[int], Sequence[int]],
    initial_weights: Path | None = None,
) -> nn.Module:
    """Trains a network, or resumes a killed run; returns the averaged network.

    Args:
        shape: Widths and numbers of blocks of a ResNet's stages.
        initial_weights: Checkpoint whose weights are taken where name and shape fit.

    Raises:
        TrainingError: the loss is not finite.
        DataError: an image cannot be read or does not have one label, or there are no outliers or initial weights.
    """
    for samples in (task.training, task.validation):
        refuse_other_labels(samples)
    # Whatever is cut off, the image keeps its label.
    recipe = replace(recipe, augmentation=replace(recipe.augmentation, min_visible=0.0))
    outliers = "" if recipe.outlier_exposure is None else recipe.outlier_exposure.content()
    described = json.dumps([asdict(recipe), asdict(blueprint), shape], default=str)
    start = "" if initial_weights is None else digest(initial_weights)
    identity = digest(described, task.training.digest(), outliers, start)
    torch.manual_seed(recipe.seed)
    network: nn.Module
    if blueprint.architecture == LENET:
        network = OpenOODLeNet(len(blueprint.classes))
    else:
        network = OpenOODResNet(*shape, classes=len(blueprint.classes))
    if initial_weights is not None:
        network.load_state_dict(fitting(initial_weights, network.state_dict()), strict=False)
    return ClassifierRun(network.to(task.device), recipe, task, identity, blueprint).go()


def evaluate(network: nn.Module, samples: Samples, recipe: Recipe, blueprint: ClassifierBlueprint) -> dict[str, Any]:
    """Accuracy of a network in evaluation mode: {"accuracy": over images, "per_class": {class: {"accuracy": …}}}."""
    device = next(network.parameters()).device
    correct = []
    for batch in DataLoader(samples, batch_size=recipe.batch_size, num_workers=recipe.workers, collate_fn=list):
        with torch.inference_mode(), autocast(device, recipe.precision):
            logits = network(to_tensor([sample.pixels for sample in batch], blueprint, device))
        correct.append(logits.argmax(dim=1).cpu().numpy() == [sample.labels.item() for sample in batch])
    right, labels = np.concatenate(correct), np.concatenate(samples.labels)
    shares = {name: right[labels == k].mean() for k, name in enumerate(samples.classes) if (labels == k).any()}
    per_class = {name: {"accuracy": float(share)} for name, share in shares.items()}
    return {"accuracy": float(right.mean()), "per_class": per_class}


def to_tensor(images: Sequence[np.ndarray], blueprint: ClassifierBlueprint, device: torch.device) -> Tensor:
    """Images, uint8 (H, W, 3) each, as the network's input (N, 3, side, side), prepared as the adapter does."""
    preprocessing = blueprint.preprocessing
    pixels = np.stack([resize_and_crop(image, preprocessing).pixels for image in images])
    mean, std = (torch.tensor(preprocessing[name], device=device)[:, None, None] for name in ("mean", "std"))
    batch = torch.from_numpy(pixels).to(device).permute(0, 3, 1, 2).float() / 255
    # Not channels_last: PyTorch 2.15 corrupts memory in the backward pass of stems of 8 channels.
    return ((batch - mean) / std).contiguous()


def refuse_other_labels(samples: Samples) -> None:
    """Raises a DataError where an image does not have exactly one label."""
    for row, labels in enumerate(samples.labels):
        if len(labels) != 1:
            name = samples.images.image_id[row]
            raise DataError(f"image {name!r} has {len(labels)} labels; a classifier learns from images with one")


def fitting(path: Path, expected: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights of a file that fit a state dict by name and shape; DataError if there are none."""
    found = floats(read_weights(path))
    fit = {name: tensor for name, tensor in found.items() if name in expected and tensor.shape == expected[name].shape}
    if not fit:
        raise DataError("no weight fits the network by name and shape", file=path)
    return fit
