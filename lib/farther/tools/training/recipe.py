"""How a detector is trained: every number that decides it."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from farther.registry import STRICT

Fraction = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]


@dataclass(config=STRICT, kw_only=True)
class Augmentation:
    """Random changes of each training image.

    Args:
        flip: Probability of a mirror image.
        scale: Range of the factor by which the content grows within its frame.
        translate: Largest shift, as a fraction of the image's side.
        brightness, contrast, saturation: Largest relative change.
        hue: Largest rotation of the colours, in turns.
        min_visible: A box of which less than this fraction is left in the frame is dropped.
    """

    flip: Fraction = 0.5
    scale: tuple[Positive, Positive] = (1.0, 1.0)
    translate: Fraction = 0.0
    brightness: Fraction = 0.0
    contrast: Fraction = 0.0
    saturation: Fraction = 0.0
    hue: Annotated[float, Field(ge=0, le=0.5)] = 0.0
    min_visible: Fraction = 0.3


@dataclass(config=STRICT, kw_only=True)
class Recipe:
    """Parameters of a training run. The defaults are the published 1× schedule for Faster R-CNN on real photographs
    (Detectron2 and Wu et al. 2019: 90,000 steps of 16 images, SGD at 0.02) with a cosine in place of its two steps.

    Args:
        epochs: Passes over the training images.
        batch_size: Images a step.
        optimizer: "sgd" (with momentum) or "adamw".
        learning_rate: At its highest; for SGD usually 0.02 × batch_size / 16.
        momentum: Of SGD.
        weight_decay: Of matrices and kernels; biases and normalisations have none.
        warmup_steps: Steps in which the learning rate rises in a straight line.
        final_learning_rate: Fraction of `learning_rate` that the cosine ends at.
        clip_norm: Gradients longer than this are shortened to it; None leaves them.
        average: Decay a step of the moving average of the weights that is evaluated and kept; 0 takes no average.
        precision: What the network computes in; losses are computed in float32.
        seed: Of the weights, the order of images, the augmentation, and the samples of anchors and proposals.
        workers: Processes that read and augment; 0 does it in this one.
        cache_images: Whether decoded images are kept in memory.
        checkpoint_steps: Steps after which the state of the run is written, so that a killed run goes on from there.
        evaluate_epochs: Epochs between two looks at the validation images; the last epoch has one in any case.
        augmentation: See `Augmentation`.
    """

    epochs: Count = 12
    batch_size: Count = 16
    optimizer: Literal["sgd", "adamw"] = "sgd"
    learning_rate: Positive = 0.02
    momentum: Fraction = 0.9
    weight_decay: Annotated[float, Field(ge=0)] = 1e-4
    warmup_steps: Annotated[int, Field(ge=0)] = 1000
    final_learning_rate: Fraction = 0.0
    clip_norm: Positive | None = None
    average: Annotated[float, Field(ge=0, lt=1)] = 0.0
    precision: Literal["float32", "bfloat16"] = "float32"
    seed: int = 0
    workers: Annotated[int, Field(ge=0)] = 4
    cache_images: bool = False
    checkpoint_steps: Count = 1000
    evaluate_epochs: Count = 1
    augmentation: Augmentation = Field(default_factory=Augmentation)

    def learning_rate_at(self, step: int, steps: int) -> float:
        """Learning rate of a step: a straight rise, then half a cosine wave (Loshchilov and Hutter 2017).

        Args:
            step: From 0.
            steps: Of the whole run.
        """
        if step < self.warmup_steps:
            return self.learning_rate * (step + 1) / self.warmup_steps
        progress = (step - self.warmup_steps) / max(1, steps - self.warmup_steps)
        wave = (1 + math.cos(math.pi * progress)) / 2
        return self.learning_rate * (self.final_learning_rate + (1 - self.final_learning_rate) * wave)
