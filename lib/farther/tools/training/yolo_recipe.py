"""How YOLO is trained: every number that decides it. Needs no framework."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from farther.registry import STRICT
from farther.tools.training.recipe import Count, Fraction, Positive


@dataclass(config=STRICT, kw_only=True)
class YoloRecipe:
    """Parameters of a training run. The defaults are those of FMIYC, Appendix G.1: Ultralytics' own but for the
    optimizer, its learning rate and the cosine.

    The paper also names copy-paste and erasing. Ultralytics copies only objects that have masks, and erases only for
    classifiers: for boxes neither does anything, so neither is a parameter.

    Args:
        epochs: Passes over the training images.
        batch_size: Images that go through the network together.
        nominal_batch: Gradients of batches are added up until about so many images were seen, then the optimizer steps.
        optimizer: A name that Ultralytics knows: "AdamW", "SGD", …
        learning_rate: At its highest.
        final_learning_rate: Fraction of `learning_rate` that the cosine ends at.
        momentum: Of SGD; for AdamW its β₁.
        weight_decay: Of matrices and kernels; biases and normalisations have none.
        warmup_epochs: In which learning rate and momentum rise.
        warmup_bias_learning_rate: Where the learning rate of the biases starts, while that of all others starts at 0.
            For AdamW, whose steps are as long as the rate, 0 is better.
        mosaic: Probability that four images are put together.
        close_mosaic: Epochs at the end that are without mosaic.
        translate: Largest shift, as a fraction of the image's side.
        scale: Largest relative change of size.
        flip: Probability of a mirror image.
        hue, saturation, value: Largest relative change of the colours.
        precision: What the network computes in; losses are computed in float32.
        seed: Of the weights, the order of images and the augmentation.
        workers: Processes that read and augment. Without a GPU there are none.
        cache_images: Whether decoded images are kept in memory.
        evaluate_epochs: Epochs between two looks at the validation images; the last epoch has one in any case.
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
        """The same under Ultralytics' names."""
        return {
            "epochs": self.epochs,
            "batch": self.batch_size,
            "nbs": self.nominal_batch,
            "optimizer": self.optimizer,
            "lr0": self.learning_rate,
            "lrf": self.final_learning_rate,
            "cos_lr": True,
            "momentum": self.momentum,
            "weight_decay": self.weight_decay,
            "warmup_epochs": self.warmup_epochs,
            "warmup_bias_lr": self.warmup_bias_learning_rate,
            "mosaic": self.mosaic,
            "close_mosaic": self.close_mosaic,
            "translate": self.translate,
            "scale": self.scale,
            "fliplr": self.flip,
            "hsv_h": self.hue,
            "hsv_s": self.saturation,
            "hsv_v": self.value,
            "seed": self.seed,
            "workers": self.workers,
            "cache": "ram" if self.cache_images else False,
        }
