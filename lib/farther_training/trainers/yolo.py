"""The trainer of YOLOv8 and its relatives, and its hyperparameters."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field
from pydantic.dataclasses import dataclass

from farther.registry import STRICT
from farther.tables.files import digest
from farther_training.recipe import Count, YoloRecipe
from farther_training.trainers import Job, Task, Trained, count_parameters, register


@register("yolo")
@dataclass(config=STRICT, kw_only=True)
class YoloJob(Job):
    """Trains a detection network of Ultralytics.

    Args:
        architecture: Name of an architecture of Ultralytics.
        changes: Keys of its description to replace, such as `reg_max`, or `scales`: factors of depth and width, and the
            largest number of channels, by the last letter of the name.
        image_size: Longer side of scaled images in pixels. FMIYC used 512 for VOC and 736 for BDD100k.
        initial_weights: Checkpoint to start from, in farther's or Ultralytics' format; layers that do not fit start
            from scratch.
        recipe: Hyperparameters.
    """

    architecture: str = "yolov8n"
    changes: dict[str, Any] = Field(default_factory=dict)
    image_size: Count = 512
    recipe: Annotated[YoloRecipe, Field(default_factory=YoloRecipe)]

    def learn(self, task: Task) -> Trained:
        """See `Job.learn`."""
        from farther.detectors.networks.yolo import YoloBlueprint
        from farther.detectors.networks.yolo_checkpoint import load_network, read_checkpoint, save_checkpoint
        from farther_training.yolo import Plan, evaluate, train

        blueprint = YoloBlueprint.shipped(self.architecture, task.training.classes, self.image_size, self.changes)
        start = None if self.initial_weights is None else read_checkpoint(self.initial_weights).weights
        network = train(Plan(blueprint, task, self.recipe, start))
        save_checkpoint(self.weights, network, blueprint, task.notes)
        written = load_network(self.weights, read_checkpoint(self.weights)).to(task.device)
        return Trained(
            evaluate=lambda samples: evaluate(written, blueprint, samples),
            parameters=count_parameters(network),
            origin=None if self.initial_weights is None else digest(self.initial_weights),
            kind=f"YOLO, architecture `{self.architecture}` of Ultralytics",
            scaling=f"Images are scaled to {self.image_size} pixels on the longer side.",
            facts={
                "architecture": self.architecture,
                **({"changes": self.changes} if self.changes else {}),
                "classes": list(task.training.classes),
                "image_size": self.image_size,
            },
            packages=("ultralytics",),
        )
