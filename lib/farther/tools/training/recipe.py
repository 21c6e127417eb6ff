"""Hyperparameters of training that most detectors share."""

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
    """Parameters of the random augmentation of training images.

    Args:
        flip: Probability of a mirror image.
        scale: Range of the factor by which the content is scaled within its frame.
        translate: Largest shift, as a fraction of the image's side.
        brightness, contrast, saturation: Largest relative change.
        hue: Largest rotation of the colours, in turns.
        min_visible: Least fraction of a box that must stay in the frame; other boxes are dropped.
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
    """Hyperparameters of a training run. The defaults are the published 1× schedule for Faster R-CNN (Detectron2, Wu et
    al. 2019: 90,000 steps of 16 images, SGD at 0.02) with a cosine in place of its two steps.

    Args:
        epochs: Passes over the training images.
        batch_size: Images per step.
        optimizer: "sgd" (with momentum) or "adamw".
        learning_rate: Highest learning rate; for SGD usually 0.02 × batch_size / 16.
        momentum: Momentum of SGD.
        weight_decay: Weight decay of matrices and kernels; biases and normalisations have none.
        warmup_steps: Steps in which the learning rate increases linearly.
        final_learning_rate: Final learning rate of the cosine, as a fraction of `learning_rate`.
        clip_norm: Largest norm of the gradients; None does not clip.
        average: Decay per step of the moving average of the weights, which is evaluated and kept; 0 for no average.
        precision: Precision of the network; losses are computed in float32.
        seed: Seed of the weights, the order of images, the augmentation, and the sampling of anchors and proposals.
        workers: Number of processes that read and augment; 0 uses the main process.
        cache_images: Whether decoded images are kept in memory.
        checkpoint_steps: Interval in steps at which the state of the run is saved.
        evaluate_epochs: Interval of evaluations on the validation images in epochs; the last epoch is always evaluated.
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
        """Learning rate of a step (from 0) of `steps`: linear warm-up, then half a cosine (arXiv:1608.03983)."""
        if step < self.warmup_steps:
            return self.learning_rate * (step + 1) / self.warmup_steps
        progress = (step - self.warmup_steps) / max(1, steps - self.warmup_steps)
        wave = (1 + math.cos(math.pi * progress)) / 2
        return self.learning_rate * (self.final_learning_rate + (1 - self.final_learning_rate) * wave)
