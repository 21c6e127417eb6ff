"""A confidence branch: a classifier that asks for hints, and pays for them."""

from __future__ import annotations

import torch
from pydantic import PositiveFloat
from pydantic.dataclasses import dataclass
from torch import Tensor
from torch.nn.functional import softplus

from farther.naming.registry import STRICT, Parameters
from farther_training.ranges import Fraction

#: Probabilities below this are raised to it before their logarithm is taken, as in OpenOOD.
SMALLEST = 1e-12


@dataclass(config=STRICT, kw_only=True)
class ConfidenceBranch(Parameters):
    """Cross-entropy of p' = c p + (1 − c) y, plus λ times the price of hints, −log c.

    The network gives the confidence c beside the probabilities p; a low one moves p towards the
    true label y. λ is raised by each step whose price is at least the budget β, and lowered by each
    other step, so that hints cost β.

    Args:
        budget: β; 0.3 in the paper and in OpenOOD.
        weight: λ before the first step; 0.1 in OpenOOD.
        hints: Probability that an image gets a hint at all; the others keep p (Section 2.3 of the
            paper: half of them).

    References:
        DeVries and Taylor, "Learning Confidence for Out-of-Distribution Detection in Neural
        Networks", 2018, Section 2, arXiv:1802.04865. Code:
        https://github.com/uoguelph-mlrg/confidence_estimation
    """

    budget: PositiveFloat = 0.3
    weight: PositiveFloat = 0.1
    hints: Fraction = 0.5

    def hinted(self, count: int) -> Tensor:
        """Mask of the images that get a hint, bool (count,), drawn from PyTorch's generator."""
        return torch.rand(count) < self.hints

    def adjusted(self, weight: float, price: float) -> float:
        """λ of the next step: λ / 0.99 where the price reached the budget, else λ / 1.01."""
        if price >= self.budget:
            return weight / 0.99
        return weight / 1.01


def interpolated_loss(logits: Tensor, confidence: Tensor, labels: Tensor, hinted: Tensor) -> Tensor:
    """−log p'_y with p' = c p + (1 − c) y where there is a hint, else p' = p; mean over images.

    Args:
        logits: Shape (B, K).
        confidence: Before the sigmoid, shape (B,).
        labels: int64 (B,).
        hinted: Which images get a hint, bool (B,).
    """
    probability = logits.softmax(dim=1).gather(1, labels[:, None])[:, 0]
    certainty = confidence.sigmoid()
    helped = certainty * probability + (1 - certainty)
    interpolated = torch.where(hinted, helped, probability)
    return -interpolated.clamp(min=SMALLEST).log().mean()


def price_of_hints(confidence: Tensor) -> Tensor:
    """−log c, mean over images, of confidences before the sigmoid, shape (B,)."""
    return softplus(-confidence).mean()
