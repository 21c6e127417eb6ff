"""Hyperparameters of training, of all detectors and of each kind."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Annotated, Any, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from farther.naming.registry import STRICT, Parameters
from farther_training.confidence_branch import ConfidenceBranch
from farther_training.g_odin import GOdin
from farther_training.logit_norm import LogitNorm
from farther_training.mixing import CutMix, Mixup
from farther_training.outlier_exposure import OutlierExposure
from farther_training.pixmix import PixMix
from farther_training.ranges import Count, Fraction, Positive


@dataclass(config=STRICT, kw_only=True)
class Augmentation(Parameters):
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
class Recipe(Parameters):
    """Hyperparameters of a training run.

    The defaults are the published 1× schedule for Faster R-CNN (Detectron2, Wu et
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
        decay_epochs: Epochs after which the learning rate is multiplied by `decay`, in place of the
            cosine; the cosine where there are none.
        decay: See `decay_epochs`.
        clip_norm: Largest norm of the gradients; None does not clip.
        average: Decay per step of the moving average of the weights, which is evaluated and kept; 0
            for no average.
        precision: Precision of the network; losses are computed in float32.
        seed: Seed of the weights, the order of images, the augmentation, and the sampling of
            anchors and proposals.
        workers: Number of processes that read and augment; 0 uses the main process.
        cache_images: Whether decoded images are kept in memory.
        checkpoint_steps: Interval in steps at which the state of the run is saved.
        evaluate_epochs: Interval of evaluations on the validation images in epochs; the last epoch
            is always evaluated.
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
    decay_epochs: tuple[Count, ...] = ()
    decay: Fraction = 0.1
    clip_norm: Positive | None = None
    average: Annotated[float, Field(ge=0, lt=1)] = 0.0
    precision: Literal["float32", "bfloat16"] = "float32"
    seed: int = 0
    workers: Annotated[int, Field(ge=0)] = 4
    cache_images: bool = False
    checkpoint_steps: Count = 1000
    evaluate_epochs: Count = 1
    augmentation: Augmentation = Field(default_factory=Augmentation)

    def __post_init__(self) -> None:
        if list(self.decay_epochs) != sorted(set(self.decay_epochs)):
            raise ValueError(f"decay_epochs must increase, found {list(self.decay_epochs)}")
        if self.decay_epochs and self.decay_epochs[-1] >= self.epochs:
            problem = (
                f"decay_epochs = {list(self.decay_epochs)} must be before the last of "
                f"{self.epochs} epochs"
            )
            raise ValueError(problem)

    def learning_rate_at(self, step: int, steps: int) -> float:
        """Learning rate of a step (from 0) of `steps`.

        A linear warm-up, then half a cosine (arXiv:1608.03983), or the decays after `decay_epochs`.
        """
        if step < self.warmup_steps:
            return self.learning_rate * (step + 1) / self.warmup_steps
        if self.decay_epochs:
            epochs_done = step * self.epochs // steps
            decays = sum(epoch <= epochs_done for epoch in self.decay_epochs)
            return self.learning_rate * self.decay**decays
        progress = (step - self.warmup_steps) / max(1, steps - self.warmup_steps)
        wave = (1 + math.cos(math.pi * progress)) / 2
        return self.learning_rate * (
            self.final_learning_rate + (1 - self.final_learning_rate) * wave
        )


@dataclass(config=STRICT, kw_only=True)
class MultiScale(Parameters):
    """Random sizes and crops of training images: the augmentation of Deformable DETR.

    It replaces the single size. Either the image is resized, or (with probability
    `crop_probability`) it is resized, cropped and resized again. The defaults are SAOD's (Oksuz et
    al. 2023, arXiv:2307.00934, Appendix B), which names Deformable DETR's (Zhu et al. 2021,
    arXiv:2010.04159).

    Args:
        shorter: Range of the shorter side in pixels, …
        longest: … unless the longer one would then have more than this.
        crop_probability: Of the second alternative.
        shorter_before: Range of the shorter side before the crop, …
        longest_before: … unless the longer one would then have more than this.
        crop: Range of height and of width of the crop, each drawn by itself; the image's where that
            is smaller.
    """

    shorter: tuple[Count, Count] = (480, 800)
    longest: Count = 1333
    crop_probability: Fraction = 0.5
    shorter_before: tuple[Count, Count] = (400, 600)
    longest_before: Count = 4200
    crop: tuple[Count, Count] = (384, 600)

    def __post_init__(self) -> None:
        for name in ("shorter", "shorter_before", "crop"):
            lowest, highest = getattr(self, name)
            if lowest > highest:
                raise ValueError(
                    f"{name} = [{lowest}, {highest}]: the first number is the smaller one"
                )


@dataclass(config=STRICT, kw_only=True)
class DetectorRecipe(Recipe):
    """Hyperparameters of torchvision's detectors, in addition to those of `Recipe`.

    Args:
        multi_scale: Random sizes and crops of training images; None takes the network's one size.
    """

    multi_scale: MultiScale | None = None


@dataclass(config=STRICT, kw_only=True)
class RetinaNetRecipe(DetectorRecipe):
    """Hyperparameters of a RetinaNet: `DetectorRecipe` with half the learning rate.

    See Lin et al. 2017, arXiv:1708.02002, Section 5.1: 90,000 steps of 16 images, SGD at 0.01.
    """

    learning_rate: Positive = 0.01


@dataclass(config=STRICT, kw_only=True)
class VirtualOutliers(Parameters):
    """Parameters of virtual outliers. The defaults are those of the authors' code.

    Args:
        queue: Number of features kept per class, the newest ones.
        candidates: Number of points drawn from each class's Gaussian per step.
        kept: Number of these points with the lowest density that become virtual outliers.
        weight: Weight of the loss.
        start: Fraction of the run before which the loss is not used, as features do not separate
            classes yet.
    """

    queue: Count = 1000
    candidates: Count = 10_000
    kept: Count = 1
    weight: Positive = 0.1
    start: Fraction = 2 / 3

    def __post_init__(self) -> None:
        if self.kept > self.candidates:
            raise ValueError(f"kept = {self.kept} of {self.candidates} candidates")


@dataclass(config=STRICT, kw_only=True)
class ImageVirtualOutliers(VirtualOutliers):
    """Parameters of virtual outliers of classifiers; see `VirtualOutliers`.

    Args:
        start: Fraction of the run before which the loss is not used: 40 of 100 epochs in the
            authors' code; 0 in OpenOOD.
    """

    start: Fraction = 0.4


@dataclass(config=STRICT, kw_only=True)
class FasterRCNNRecipe(DetectorRecipe):
    """Hyperparameters of a Faster R-CNN, in addition to those of `DetectorRecipe`.

    Args:
        box_loss: Loss of the box head: "smooth_l1" as in torchvision, or one that also teaches the
            variance of the box, "nll" (He et al. 2019) or "energy_score" (Harakeh & Waslander
            2021); see `farther_training.box_losses`.
        virtual_outliers: Parameters of VOS; None trains without it.
    """

    box_loss: Literal["smooth_l1", "nll", "energy_score"] = "smooth_l1"
    virtual_outliers: VirtualOutliers | None = None


#: Trainings of a classifier that exclude each other: each has a loss of its own, mixes labels, or
#: needs a last layer that another one replaces.
EXCLUSIVE = (
    ("logit_norm", "confidence_branch", "g_odin"),
    ("mixup", "cutmix", "virtual_outliers", "confidence_branch"),
    ("virtual_outliers", "g_odin"),
    ("confidence_branch", "outlier_exposure"),
)


@dataclass(config=STRICT, kw_only=True)
class ClassifierRecipe(Recipe):
    """Hyperparameters of an image classifier, in addition to those of `Recipe`.

    The defaults are OpenOOD's for CIFAR: 100 epochs of batches of 128, SGD at 0.1, weight decay
    5e-4.

    Args:
        logit_norm: Parameters of LogitNorm; None trains with the cross-entropy.
        outlier_exposure: Parameters of outlier exposure; None trains without outliers.
        mixup: Parameters of Mixup; None mixes no images.
        cutmix: Parameters of CutMix; None cuts no images.
        pixmix: Parameters of PixMix; None mixes no pictures in.
        confidence_branch: Parameters of the confidence branch; None trains without it.
        g_odin: Parameters of G-ODIN's quotients; None trains a linear last layer.
        virtual_outliers: Parameters of VOS; None trains without it.
    """

    epochs: Count = 100
    batch_size: Count = 128
    learning_rate: Positive = 0.1
    weight_decay: Annotated[float, Field(ge=0)] = 5e-4
    warmup_steps: Annotated[int, Field(ge=0)] = 0
    logit_norm: LogitNorm | None = None
    outlier_exposure: OutlierExposure | None = None
    mixup: Mixup | None = None
    cutmix: CutMix | None = None
    pixmix: PixMix | None = None
    confidence_branch: ConfidenceBranch | None = None
    g_odin: GOdin | None = None
    virtual_outliers: ImageVirtualOutliers | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for names in EXCLUSIVE:
            together = [name for name in names if getattr(self, name) is not None]
            if len(together) > 1:
                raise ValueError(f"{' and '.join(together)} exclude each other: give one")
        if self.g_odin is not None and self.batch_size == 1:
            raise ValueError(
                "g_odin normalises over the images of a batch: batch_size is at least 2"
            )


@dataclass(config=STRICT, kw_only=True)
class DetrRecipe(Recipe):
    """Hyperparameters of a detection transformer, in addition to those of `Recipe`.

    The defaults are FMIYC's for Pascal VOC, Appendix G and Table 26 (for BDD100k both learning
    rates are twice as high): a checkpoint trained on COCO is fine-tuned until the validation
    metrics stop increasing.

    Args:
        backbone_learning_rate: Highest learning rate of the backbone.
        patience: Epochs without a better mAP50 on the validation images after which training ends;
            the weights of the best epoch are kept. None trains to the end and keeps the last
            weights.
        one_to_many: Initial weight of `farther_training.trainers.detr.one_to_many_loss`, for
            training from scratch.
        one_to_many_until: Fraction of the run over which that weight decreases linearly to 0.
    """

    epochs: Count = 60
    batch_size: Count = 8
    optimizer: Literal["sgd", "adamw"] = "adamw"
    learning_rate: Positive = 2e-5
    backbone_learning_rate: Positive = 2e-6
    clip_norm: Positive | None = 0.1
    seed: int = 40
    patience: Count | None = 16
    one_to_many: Annotated[float, Field(ge=0)] = 0.0
    one_to_many_until: Fraction = 0.5

    def one_to_many_at(self, progress: float) -> float:
        """Weight after a fraction of the run."""
        return (
            self.one_to_many * max(0.0, 1 - progress / self.one_to_many_until)
            if self.one_to_many_until
            else 0.0
        )


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
class YoloRecipe(Parameters):
    """Hyperparameters of YOLO.

    The defaults are those of FMIYC, Appendix G.1: Ultralytics', except for the optimizer,
    its learning rate and the cosine schedule.

    The paper also names copy-paste and erasing. Ultralytics applies copy-paste only to objects with
    masks, and erasing only to classifiers, so neither is a parameter here.

    Args:
        epochs: Passes over the training images.
        batch_size: Images per batch.
        nominal_batch: Number of images over which gradients are accumulated for a step of the
            optimizer.
        optimizer: A name that Ultralytics knows: "AdamW", "SGD", …
        learning_rate: Highest learning rate.
        final_learning_rate: Final learning rate of the cosine, as a fraction of `learning_rate`.
        momentum: Momentum of SGD, or β₁ of AdamW.
        weight_decay: Weight decay of matrices and kernels; biases and normalisations have none.
        warmup_epochs: Epochs in which learning rate and momentum increase.
        warmup_bias_learning_rate: Initial learning rate of the biases; that of all other parameters
            is 0. For AdamW 0 is better.
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
        evaluate_epochs: Interval of evaluations on the validation images in epochs; the last epoch
            is always evaluated.
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
        for name in ("precision", "evaluate_epochs"):  # see `farther_training.trainers.yolo`
            del params[name]
        return {
            **{NAMES.get(name, name): value for name, value in params.items()},
            "cos_lr": True,
            "cache": cache,
        }
