"""Mixup and CutMix: images of a batch mixed in pairs, with labels mixed in the same proportion."""

from __future__ import annotations

import torch
from pydantic import PositiveFloat
from pydantic.dataclasses import dataclass
from torch import Tensor
from torch.nn.functional import one_hot
from torchvision.transforms import v2

from farther.naming.registry import STRICT, Parameters
from farther_training.ranges import Fraction


@dataclass(config=STRICT, kw_only=True)
class Mixup(Parameters):
    """λ x + (1 − λ) x' of each image x and the next image x' of its batch; labels likewise.

    λ is drawn from Beta(α, α), once per batch.

    Args:
        alpha: α; 0.2 in OpenOOD, 1 for CIFAR in the paper.

    References:
        Zhang et al., "mixup: Beyond Empirical Risk Minimization", 2018, arXiv:1710.09412. The
        mixing is that of torchvision.transforms.v2.
    """

    alpha: PositiveFloat = 0.2

    def mix(self, images: Tensor, labels: Tensor, classes: int) -> tuple[Tensor, Tensor]:
        """Mixed images (B, 3, H, W), and probabilities of the labels (B, K).

        Args:
            images: Shape (B, 3, H, W).
            labels: int64 (B,).
            classes: K.
        """
        return v2.MixUp(alpha=self.alpha, num_classes=classes)(images, labels)


@dataclass(config=STRICT, kw_only=True)
class CutMix(Parameters):
    """Replaces a rectangle of each image by that of the next image; mixes labels by area.

    The rectangle's share of the image, before it is cut at the border, is 1 − λ with λ from Beta(α,
    α). Rectangle and λ are drawn once per batch.

    Args:
        alpha: α; 1 in the paper and in OpenOOD.
        probability: Of mixing a batch; 1 in OpenOOD, 0.5 for CIFAR in the paper.

    References:
        Yun et al., "CutMix: Regularization Strategy to Train Strong Classifiers with Localizable
        Features", 2019, arXiv:1905.04899. The mixing is that of torchvision.transforms.v2.
    """

    alpha: PositiveFloat = 1.0
    probability: Fraction = 1.0

    def mix(self, images: Tensor, labels: Tensor, classes: int) -> tuple[Tensor, Tensor]:
        """Mixed images (B, 3, H, W), and probabilities of the labels (B, K); see `Mixup.mix`."""
        if torch.rand(()) >= self.probability:
            return images, one_hot(labels, classes).to(images.dtype)
        return v2.CutMix(alpha=self.alpha, num_classes=classes)(images, labels)
