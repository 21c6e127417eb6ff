"""The trainer of Faster R-CNN, with or without virtual outliers."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from farther.registry import STRICT
from farther.tables.files import digest
from farther_training.recipe import Count, FasterRCNNRecipe
from farther_training.trainers import Job, Task, Trained, count_parameters, register


@register("faster_rcnn")
@dataclass(config=STRICT, kw_only=True)
class FasterRCNNJob(Job):
    """Trains a Faster R-CNN of torchvision, with VOS or variances of boxes where the recipe says so.

    Args:
        architecture: See `farther.detectors.networks.architectures`.
        min_size, max_size: Shorter side of scaled images in pixels, and largest longer side.
        initial_weights: See `farther_training.faster_rcnn.initial_weights`.
        recipe: Hyperparameters.
    """

    architecture: str = "resnet50_fpn"
    min_size: Count = 800
    max_size: Count = 1333
    recipe: Annotated[FasterRCNNRecipe, Field(default_factory=FasterRCNNRecipe)]

    def learn(self, task: Task) -> Trained:
        """See `Job.learn`."""
        from farther.detectors.networks.architectures import Blueprint
        from farther.detectors.networks.checkpoint import load_network, save_checkpoint
        from farther_training.faster_rcnn import evaluate, initial_weights, train

        blueprint = Blueprint(self.architecture, task.training.classes, self.min_size, self.max_size)
        start = initial_weights(self.initial_weights, blueprint)
        network = train(blueprint, task, self.recipe, start)
        notes = {**task.notes, "box_loss": self.recipe.box_loss}
        save_checkpoint(self.weights, network.state_dict(), blueprint, notes)
        written = load_network(self.weights, blueprint).to(task.device)
        most = f"at most {self.max_size} on the longer one"
        return Trained(
            evaluate=lambda samples: evaluate(written, samples, self.recipe),
            parameters=count_parameters(network),
            origin=None if self.initial_weights is None else digest(self.initial_weights),
            kind=f"{self._kind}, architecture `{self.architecture}`",
            scaling=f"Images are scaled to {self.min_size} pixels on the shorter side, {most}.",
            facts={**asdict(blueprint), "classes": list(blueprint.classes)},
            packages=("torchvision",),
        )

    @property
    def _kind(self) -> str:
        added = {
            "virtual outliers (VOS)": self.recipe.virtual_outliers is not None,
            f"variances of boxes ({self.recipe.box_loss})": self.recipe.box_loss != "smooth_l1",
        }
        names = [name for name, is_added in added.items() if is_added]
        return " with ".join(["Faster R-CNN", " and ".join(names)] if names else ["Faster R-CNN"])
