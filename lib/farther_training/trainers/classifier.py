"""The trainer of image classifiers: OpenOOD's ResNets for small images.

Training methods for OOD detection are LogitNorm, outlier exposure, Mixup, CutMix, PixMix, a
confidence branch, G-ODIN and VOS: see `farther_training.recipe.ClassifierRecipe`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from dataclasses import dataclass as plain_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, cast

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
from farther.detectors.networks.classifier_heads import ConfidenceHead, GOdinHead, from_openood
from farther.detectors.networks.detection import autocast
from farther.detectors.networks.heads import ENERGY_HEAD, EnergyHead
from farther.detectors.networks.taps import recorded_calls
from farther.detectors.networks.weights import as_float32, read_weights
from farther.errors import DataError
from farther.naming.registry import STRICT
from farther.tables.files import digest
from farther_training.confidence_branch import interpolated_loss, price_of_hints
from farther_training.pixmix import PixMix
from farther_training.ranges import Count
from farther_training.recipe import ClassifierRecipe, Recipe
from farther_training.run import Change, Run, make_optimizer
from farther_training.samples import Sample, Samples, augment
from farther_training.trainers import (
    Job,
    Task,
    Trained,
    count_parameters,
    digest_of_weights,
    register,
)
from farther_training.virtual_outliers import OutlierQueue, check_filled, outlier_loss

#: Titles of the trainings that a recipe may name.
TITLES = {
    "logit_norm": "LogitNorm",
    "outlier_exposure": "outlier exposure",
    "mixup": "Mixup",
    "cutmix": "CutMix",
    "pixmix": "PixMix",
    "confidence_branch": "a confidence branch",
    "g_odin": "G-ODIN",
    "virtual_outliers": "virtual outliers (VOS)",
}

#: Those that add a head to the network.
HEADS = ("confidence_branch", "g_odin", "virtual_outliers")

Channels = tuple[float, float, float]
Network = OpenOODResNet | OpenOODLeNet
Counts = Annotated[tuple[Count, ...], Field(min_length=1)]


@register("classifier")
@dataclass(config=STRICT, kw_only=True)
class ClassifierJob(Job):
    """Trains an image classifier of OpenOOD: a ResNet of basic blocks with a 3×3 stem, or LeNet.

    Args:
        architecture: `openood_resnet`; or `LeNet`, for images of 28 pixels, without widths and
            blocks.
        image_size: Pixels of the shorter side of images, which are then cropped to a square.
        widths: Channels of each stage; each but the first halves the resolution. The default is
            `ResNet18_32x32`.
        blocks: Blocks of each stage.
        mean, std: Of each channel, for pixels from 0 to 1.
        initial_weights: Checkpoint in the same layout; weights of another shape are initialised
            anew.
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
            raise ValueError(
                f"{LENET} takes images of {LENET_SIDE} pixels; write image_size: {LENET_SIDE}"
            )
        with_heads = [name for name in HEADS if getattr(self.recipe, name) is not None]
        if self.architecture == LENET and with_heads:
            raise ValueError(f"{with_heads[0]} needs architecture: openood_resnet, found {LENET}")

    def learn(self, task: Task) -> Trained:
        """See `Job.learn`."""
        size = {"resize": self.image_size, "crop": self.image_size, "interpolation": "bilinear"}
        preprocessing = {**size, "mean": self.mean, "std": self.std}
        similarity = None
        if self.recipe.g_odin is not None:
            similarity = self.recipe.g_odin.similarity
        blueprint = ClassifierBlueprint(
            self.architecture, task.training.classes, preprocessing, similarity
        )
        shape = (self.widths, self.blocks)
        network = train(blueprint, task, self.recipe, shape, self.initial_weights)
        save_checkpoint(self.weights, network.state_dict(), blueprint, task.notes)
        written = load_network(self.weights, blueprint).to(task.device)
        return Trained(
            evaluate=lambda samples: evaluate(written, samples, self.recipe, blueprint),
            parameters=count_parameters(network),
            origin=digest_of_weights(self.initial_weights),
            kind=f"{self._network}{self._training}",
            scaling=(
                f"Images are scaled to {self.image_size} pixels on the shorter side "
                "and cropped to a square."
            ),
            facts={**asdict(blueprint), "classes": list(blueprint.classes)},
            packages=("torchvision",),
        )

    @property
    def _network(self) -> str:
        """Kind of network, for the card."""
        if self.architecture == LENET:
            return f"Image classifier, {LENET}"
        return f"Image classifier, ResNet with stages of {' '.join(map(str, self.widths))} channels"

    @property
    def _training(self) -> str:
        """How it is trained besides the cross-entropy, as text that begins with a comma.

        Empty for nothing else.
        """
        names = [title for name, title in TITLES.items() if getattr(self.recipe, name) is not None]
        if not names:
            return ""
        return f", trained with {', '.join(names)}"


@plain_dataclass(frozen=True)
class MixPictures:
    """Mixes pictures into a sample's image at the network's size: PixMix as a `Change`.

    Args:
        pixmix: Its parameters.
        preprocessing: Of the network.
    """

    pixmix: PixMix
    preprocessing: Mapping[str, Any]

    def __call__(self, sample: Sample, random: np.random.Generator) -> Sample:
        """The sample with a mixed image."""
        pixels = resize_and_crop(sample.pixels, self.preprocessing).pixels
        return Sample(self.pixmix.mixed(pixels, random), sample.boxes, sample.labels)


class ClassifierRun(Run[Network, ClassifierRecipe]):
    """A training run of a classifier; see `Run`.

    Attributes:
        weight_of_hints: λ of the confidence branch.
        queue: Features of the known classes, where the recipe has virtual outliers.
    """

    def __init__(
        self,
        network: Network,
        recipe: ClassifierRecipe,
        task: Task,
        identity: str,
        blueprint: ClassifierBlueprint,
    ):
        optimizer = make_optimizer(recipe, [(1.0, list(network.parameters()))])
        if isinstance(network.fc, GOdinHead):
            leave_undecayed(optimizer, network.fc.numerator.weight)
        super().__init__(network, optimizer, recipe, task, identity)
        self.blueprint = blueprint
        self.weight_of_hints = 0.0
        if recipe.confidence_branch is not None:
            self.weight_of_hints = recipe.confidence_branch.weight
        self.queue: OutlierQueue | None = None
        if recipe.virtual_outliers is not None:
            self.queue = OutlierQueue(
                recipe.virtual_outliers, len(blueprint.classes), network.width
            )
            self.queue.to(task.device)

    def change(self) -> Change | None:
        """See `Run.change`: PixMix."""
        if self.recipe.pixmix is None:
            return None
        return MixPictures(self.recipe.pixmix, self.blueprint.preprocessing)

    def compute_losses(self, batch: list[Sample]) -> dict[str, Tensor]:
        """The losses of the recipe; with outlier exposure, also of as many outliers."""
        device = self.task.device
        recipe = self.recipe
        images = to_tensor([sample.pixels for sample in batch], self.blueprint, device)
        labels = torch.tensor([sample.labels.item() for sample in batch], device=device)
        targets = labels
        mixing = recipe.mixup or recipe.cutmix
        if mixing is not None:
            images, targets = mixing.mix(images, labels, len(self.blueprint.classes))
        if recipe.outlier_exposure is not None:
            outliers = to_tensor(self._outliers(len(batch)), self.blueprint, device)
            images = torch.cat([images, outliers])

        head = self.network.fc
        with recorded_calls([head]) as inputs, autocast(device, recipe.precision):
            logits = self.network(images)
        features = inputs[head][0].float()
        logits = logits.float()
        known = logits[: len(batch)]

        losses: dict[str, Tensor] = {}
        if recipe.confidence_branch is not None:
            losses |= self._losses_with_hints(features, labels)
        elif recipe.logit_norm is not None:
            losses["loss_classifier"] = recipe.logit_norm.loss(known, targets)
        else:
            losses["loss_classifier"] = cross_entropy(known, targets)
        if recipe.outlier_exposure is not None:
            losses["loss_outliers"] = recipe.outlier_exposure.loss(logits[len(batch) :])
        losses |= self._virtual_outlier_losses(features[: len(batch)], labels, known)
        return {"loss": torch.stack(list(losses.values())).sum(), **losses}

    def _losses_with_hints(self, features: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """Losses of a confidence branch; λ is adjusted for the next step."""
        branch = self.recipe.confidence_branch
        head = self.network.fc
        assert branch is not None
        assert isinstance(head, ConfidenceHead)
        logits, confidence = head.both(features)
        hinted = branch.hinted(len(labels)).to(labels.device)
        price = price_of_hints(confidence)
        losses = {
            "loss_classifier": interpolated_loss(logits, confidence, labels, hinted),
            "loss_hints": self.weight_of_hints * price,
        }
        self.weight_of_hints = branch.adjusted(self.weight_of_hints, price.item())
        return losses

    def _virtual_outlier_losses(
        self, features: Tensor, labels: Tensor, logits: Tensor
    ) -> dict[str, Tensor]:
        """VOS's loss; none before its start, or while no class has filled its queue."""
        if self.queue is None:
            return {}
        self.queue.push(features.detach(), labels)
        if self.step < self.queue.params.start * self.steps or not len(self.queue.full):
            return {}
        head = cast("EnergyHead", self.network.get_submodule(ENERGY_HEAD))
        return {"loss_virtual_outliers": outlier_loss(self.queue, head, self.network.fc, logits)}

    def extra_state(self) -> dict[str, Any]:
        """λ of the confidence branch and the queue of features."""
        state: dict[str, Any] = {"weight_of_hints": self.weight_of_hints}
        if self.queue is not None:
            state["queue"] = dict(self.queue.state_dict())
        return state

    def load_extra_state(self, state: dict[str, Any]) -> None:
        """See `State.load_extra_state`."""
        self.weight_of_hints = state["weight_of_hints"]
        if self.queue is not None:
            self.queue.load_state_dict(state["queue"])

    def _outliers(self, count: int) -> list[np.ndarray]:
        """Augmented outliers of the current step."""
        assert self.recipe.outlier_exposure is not None
        random = np.random.default_rng([self.recipe.seed, self.step])
        no_boxes = np.zeros((0, 4), np.float32)
        no_labels = np.zeros(0, np.int64)
        outliers = []
        for image in self.recipe.outlier_exposure.images(count, random):
            sample = Sample(image, no_boxes, no_labels)
            outliers.append(augment(sample, self.recipe.augmentation, random).pixels)
        return outliers

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
        TrainingError: the loss is not finite, or no class has enough images for virtual outliers.
        DataError: an image cannot be read or does not have one label, or a folder of pictures or
            the initial weights are absent.
    """
    for samples in (task.training, task.validation):
        refuse_other_labels(samples)
    # Whatever is cut off, the image keeps its label.
    recipe = replace(recipe, augmentation=replace(recipe.augmentation, min_visible=0.0))
    outliers = ""
    if recipe.outlier_exposure is not None:
        outliers = recipe.outlier_exposure.content()
    pictures = ""
    if recipe.pixmix is not None:
        pictures = recipe.pixmix.content()
    config = json.dumps([asdict(recipe), asdict(blueprint), shape], default=str)
    origin = digest_of_weights(initial_weights) or ""
    identity = digest(config, task.training.digest(), outliers, pictures, origin)

    torch.manual_seed(recipe.seed)
    network = build_network(blueprint.architecture, recipe, shape, len(blueprint.classes))
    if initial_weights is not None:
        network.load_state_dict(fitting(initial_weights, network.state_dict()), strict=False)
    run = ClassifierRun(network.to(task.device), recipe, task, identity, blueprint)
    averaged = run.go()
    if run.queue is not None:
        check_filled(run.queue)
    return averaged


def build_network(
    architecture: str,
    recipe: ClassifierRecipe,
    shape: tuple[Sequence[int], Sequence[int]],
    classes: int,
) -> Network:
    """An untrained network with the heads that the recipe trains, drawn from PyTorch's generator.

    Args:
        architecture: See `ClassifierJob`.
        recipe: Hyperparameters.
        shape: Widths and numbers of blocks of the stages of a ResNet.
        classes: K.
    """
    if architecture == LENET:
        return OpenOODLeNet(classes)
    network = OpenOODResNet(*shape, classes=classes)
    if recipe.confidence_branch is not None:
        network.fc = ConfidenceHead(network.width, classes)
    if recipe.g_odin is not None:
        network.fc = GOdinHead(network.width, classes, recipe.g_odin.similarity)
    if recipe.virtual_outliers is not None:
        network.add_module(ENERGY_HEAD, EnergyHead(classes))
    return network


def leave_undecayed(optimizer: torch.optim.Optimizer, parameter: nn.Parameter) -> None:
    """Moves a parameter into a group of its own, without weight decay."""
    for group in optimizer.param_groups:
        decayed = [member for member in group["params"] if member is not parameter]
        if len(decayed) < len(group["params"]):
            group["params"] = decayed
            optimizer.add_param_group({**group, "params": [parameter], "weight_decay": 0.0})
            return


def evaluate(
    network: nn.Module, samples: Samples, recipe: Recipe, blueprint: ClassifierBlueprint
) -> dict[str, Any]:
    """Accuracy of a network in evaluation mode.

    Returns:
        {"accuracy": over images, "per_class": {class: {"accuracy": …}}}.
    """
    device = next(network.parameters()).device
    loader = DataLoader(
        samples, batch_size=recipe.batch_size, num_workers=recipe.workers, collate_fn=list
    )
    predicted_batches = []
    for batch in loader:
        images = to_tensor([sample.pixels for sample in batch], blueprint, device)
        with torch.inference_mode(), autocast(device, recipe.precision):
            logits = network(images)
        predicted_batches.append(logits.argmax(dim=1).cpu().numpy())
    labels = np.concatenate(samples.labels)
    is_correct = np.concatenate(predicted_batches) == labels

    per_class = {}
    for index, name in enumerate(samples.classes):
        is_of_class = labels == index
        if is_of_class.any():
            per_class[name] = {"accuracy": float(is_correct[is_of_class].mean())}
    return {"accuracy": float(is_correct.mean()), "per_class": per_class}


def to_tensor(
    images: Sequence[np.ndarray], blueprint: ClassifierBlueprint, device: torch.device
) -> Tensor:
    """The network's input (N, 3, side, side) of images, uint8 (H, W, 3) each.

    They are preprocessed as by the adapter.
    """
    preprocessing = blueprint.preprocessing
    pixels = np.stack([resize_and_crop(image, preprocessing).pixels for image in images])
    mean = torch.tensor(preprocessing["mean"], device=device)[:, None, None]
    std = torch.tensor(preprocessing["std"], device=device)[:, None, None]
    batch = torch.from_numpy(pixels).to(device).permute(0, 3, 1, 2).float() / 255
    # Not channels_last: PyTorch 2.15 corrupts memory in the backward pass of stems of 8 channels.
    return ((batch - mean) / std).contiguous()


def refuse_other_labels(samples: Samples) -> None:
    """Raises a DataError where an image does not have exactly one label."""
    for row, labels in enumerate(samples.labels):
        if len(labels) != 1:
            name = samples.images.image_id[row]
            raise DataError(
                f"image {name!r} has {len(labels)} labels; a classifier learns from images with one"
            )


def fitting(path: Path, expected: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights of a file that fit a state dict by name and shape.

    DataError if there are none.
    """
    fitting_weights = {}
    for name, tensor in as_float32(from_openood(read_weights(path))).items():
        if name in expected and tensor.shape == expected[name].shape:
            fitting_weights[name] = tensor
    if not fitting_weights:
        raise DataError("no weight fits the network by name and shape", file=path)
    return fitting_weights
