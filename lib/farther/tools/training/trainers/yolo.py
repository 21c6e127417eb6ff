"""The trainer of YOLOv8 and its relatives."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from farther.registry import STRICT
from farther.tables.files import digest
from farther.tools.training.recipe import Count
from farther.tools.training.trainers.base import Job, Task, Trained, count_parameters, register
from farther.tools.training.yolo_recipe import YoloRecipe


@register("yolo")
@dataclass(config=STRICT, kw_only=True)
class YoloJob(Job):
    """Trains a detection network of Ultralytics.

    Args:
        architecture: The name of one that ships with Ultralytics.
        image_size: Images are scaled to so many pixels on the longer side. FMIYC took 512 for VOC and 736 for BDD100k.
        initial_weights: A checkpoint to start from, farther's or Ultralytics' own; layers that do not fit start anew.
        recipe: How it is trained.
    """

    architecture: str = "yolov8n"
    image_size: Count = 512
    recipe: Annotated[YoloRecipe, Field(default_factory=YoloRecipe)]

    def learn(self, task: Task) -> Trained:
        """See `Job.learn`."""
        from farther.detectors.networks.yolo import YoloBlueprint
        from farther.detectors.networks.yolo_checkpoint import load_network, read_checkpoint, save_checkpoint
        from farther.tools.training.yolo import Plan, evaluate, train

        blueprint = YoloBlueprint.shipped(self.architecture, task.classes, self.image_size)
        start = None if self.initial_weights is None else read_checkpoint(self.initial_weights).weights
        given = (blueprint, task.training, task.validation, self.recipe)
        network = train(Plan(*given, task.work, task.log_file, task.device, start))
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
                "classes": list(task.classes),
                "image_size": self.image_size,
            },
            packages=("ultralytics",),
        )
