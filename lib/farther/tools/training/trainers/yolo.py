"""The trainer of YOLOv8 and its relatives, and its hyperparameters."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from farther.registry import STRICT
from farther.tables.files import digest
from farther.tools.training.recipe import Count, Fraction, Positive
from farther.tools.training.trainers.base import Job, Task, Trained, count_parameters, register

#: Ultralytics' names of hyperparameters that differ from those of `YoloRecipe`.
NAMES = {
    "batch_size": "batch",
    "nominal_batch": "nbs",
    "learning_rate": "lr0",
    "final_learning_rate": "lrf",
    "warmup_bias_learning_rate": "warmup_bias_lr",
    "flip": "fliplr",
    "hue": "hsv_h",
    "saturation": "hsv_s",
    "value": "hsv_v",
}


@dataclass(config=STRICT, kw_only=True)
class YoloRecipe:
    """Hyperparameters of YOLO. The defaults are those of FMIYC, Appendix G.1: Ultralytics', except for the optimizer,
    its learning rate and the cosine schedule.

    The paper also names copy-paste and erasing. Ultralytics applies copy-paste only to objects with masks, and erasing
    only to classifiers, so neither is a parameter here.

    Args:
        epochs: Passes over the training images.
        batch_size: Images per batch.
        nominal_batch: Number of images over which gradients are accumulated for a step of the optimizer.
        optimizer: A name that Ultralytics knows: "AdamW", "SGD", …
        learning_rate: Highest learning rate.
        final_learning_rate: Final learning rate of the cosine, as a fraction of `learning_rate`.
        momentum: Momentum of SGD, or β₁ of AdamW.
        weight_decay: Weight decay of matrices and kernels; biases and normalisations have none.
        warmup_epochs: Epochs in which learning rate and momentum increase.
        warmup_bias_learning_rate: Initial learning rate of the biases; that of all other parameters is 0. For AdamW 0
            is better.
        mosaic: Probability of combining four images.
        close_mosaic: Number of final epochs without mosaic.
        translate: Largest shift, as a fraction of the image's side.
        scale: Largest relative change of size.
        flip: Probability of a mirror image.
        hue, saturation, value: Largest relative change of the colours.
        precision: Precision of the network; losses are computed in float32.
        seed: Seed of the weights, the order of images and the augmentation.
        workers: Number of processes that read and augment; none without a GPU.
        cache_images: Whether decoded images are kept in memory.
        evaluate_epochs: Interval of evaluations on the validation images in epochs; the last epoch is always evaluated.
    """

    epochs: Count = 100
    batch_size: Count = 16
    nominal_batch: Count = 64
    optimizer: str = "AdamW"
    learning_rate: Positive = 1e-3
    final_learning_rate: Fraction = 0.01
    momentum: Fraction = 0.937
    weight_decay: Annotated[float, Field(ge=0)] = 5e-4
    warmup_epochs: Annotated[float, Field(ge=0)] = 3.0
    warmup_bias_learning_rate: Annotated[float, Field(ge=0)] = 0.1
    mosaic: Fraction = 1.0
    close_mosaic: Annotated[int, Field(ge=0)] = 10
    translate: Fraction = 0.1
    scale: Fraction = 0.5
    flip: Fraction = 0.5
    hue: Fraction = 0.015
    saturation: Fraction = 0.7
    value: Fraction = 0.4
    precision: Literal["float32", "bfloat16"] = "float32"
    seed: int = 0
    workers: Annotated[int, Field(ge=0)] = 8
    cache_images: bool = False
    evaluate_epochs: Count = 1

    def to_ultralytics(self) -> dict[str, Any]:
        """The hyperparameters under Ultralytics' names."""
        params = asdict(self)
        cache = "ram" if params.pop("cache_images") else False
        for name in ("precision", "evaluate_epochs"):  # see `farther.tools.training.yolo`
            del params[name]
        return {**{NAMES.get(name, name): value for name, value in params.items()}, "cos_lr": True, "cache": cache}


@register("yolo")
@dataclass(config=STRICT, kw_only=True)
class YoloJob(Job):
    """Trains a detection network of Ultralytics.

    Args:
        architecture: Name of an architecture of Ultralytics.
        image_size: Longer side of scaled images in pixels. FMIYC used 512 for VOC and 736 for BDD100k.
        initial_weights: Checkpoint to start from, in farther's or Ultralytics' format; layers that do not fit start
            from scratch.
        recipe: Hyperparameters.
    """

    architecture: str = "yolov8n"
    image_size: Count = 512
    recipe: Annotated[YoloRecipe, Field(default_factory=YoloRecipe)]

    def learn(self, task: Task) -> Trained:
        """See `Job.learn`."""
        from farther.detectors.networks.yolo import YoloBlueprint
        from farther.detectors.networks.yolo_checkpoint import load_network, read_checkpoint, save_checkpoint
        from farther.tools.training.yolo import Plan, evaluate, train

        blueprint = YoloBlueprint.shipped(self.architecture, task.training.classes, self.image_size)
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
                "classes": list(task.training.classes),
                "image_size": self.image_size,
            },
            packages=("ultralytics",),
        )
