"""The trainer of image classifiers."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from farther.registry import STRICT
from farther.tables.files import digest
from farther_training.recipe import ClassifierRecipe, Count
from farther_training.trainers import Job, Task, Trained, count_parameters, register

Channels = tuple[float, float, float]
Counts = Annotated[tuple[Count, ...], Field(min_length=1)]


@register("classifier")
@dataclass(config=STRICT, kw_only=True)
class ClassifierJob(Job):
    """Trains an image classifier: a ResNet of basic blocks with a 3×3 stem, in OpenOOD's layout (`openood_resnet`).

    Args:
        image_size: Pixels of the shorter side of images, which are then cropped to a square.
        widths: Channels of each stage; each but the first halves the resolution. The default is `ResNet18_32x32`.
        blocks: Blocks of each stage.
        mean, std: Of each channel, for pixels from 0 to 1.
        initial_weights: Checkpoint in the same layout; weights of another shape are initialised anew.
        recipe: Hyperparameters.
    """

    image_size: Count = 32
    widths: Counts = (64, 128, 256, 512)
    blocks: Counts = (2, 2, 2, 2)
    mean: Channels = (0.485, 0.456, 0.406)
    std: Channels = (0.229, 0.224, 0.225)
    recipe: Annotated[ClassifierRecipe, Field(default_factory=ClassifierRecipe)]

    def __post_init__(self) -> None:
        if len(self.widths) != len(self.blocks):
            raise ValueError(f"{len(self.widths)} widths, but {len(self.blocks)} numbers of blocks")

    def learn(self, task: Task) -> Trained:
        """See `Job.learn`."""
        from farther.detectors.networks.classifiers import Blueprint, load_network, save_checkpoint
        from farther_training.classifier import evaluate, train

        size = {"resize": self.image_size, "crop": self.image_size, "interpolation": "bilinear"}
        blueprint = Blueprint("openood_resnet", task.training.classes, {**size, "mean": self.mean, "std": self.std})
        network = train(blueprint, task, self.recipe, (self.widths, self.blocks), self.initial_weights)
        save_checkpoint(self.weights, network.state_dict(), blueprint, task.notes)
        written = load_network(self.weights, blueprint).to(task.device)
        return Trained(
            evaluate=lambda samples: evaluate(written, samples, self.recipe, blueprint),
            parameters=count_parameters(network),
            origin=None if self.initial_weights is None else digest(self.initial_weights),
            kind=f"Image classifier, ResNet with stages of {' '.join(map(str, self.widths))} channels",
            scaling=f"Images are scaled to {self.image_size} pixels on the shorter side and cropped to a square.",
            facts={**asdict(blueprint), "classes": list(blueprint.classes)},
            packages=("torchvision",),
        )
