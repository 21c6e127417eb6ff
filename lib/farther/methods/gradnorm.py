"""Norm of the last layer's gradient."""

from __future__ import annotations

from typing import ClassVar

from pydantic import PositiveFloat

from farther.methods.arrays import Array, softmax
from farther.methods.base import Method, Publication, register
from farther.methods.logits import Background
from farther.methods.rows import Rows


@register("gradnorm")
class GradNorm(Method):
    """The 1-norm of the last layer's gradient of the divergence from uniform probabilities.

    The gradient of KL(u‖p), or of the cross-entropy, which differs by a constant, is the outer
    product of h and p − 1/C, so its norm is the product of their norms, and no backward pass is
    needed. The published code and OpenOOD add the classes' cross-entropies where the paper takes
    their mean: their scores are C times these, which changes no rank. The paper compares layers and
    takes the last one, whose gradients separate best, so no other is offered.

    Formula:
        score = ‖∂KL(u‖p) / ∂W‖₁ = ‖h‖₁ · ‖p − 1/C‖₁ / T, with p = softmax(z / T), C the number of
        classes, u_c = 1/C

    Args:
        temperature: T, above 0.
        background: "drop" leaves the background logit out, "keep" counts it as one more class.

    References:
        Huang et al., "On the Importance of Gradients for Detecting Distributional Shifts in the
        Wild", 2021, arXiv:2110.00218. Code: https://github.com/deeplearning-wisc/gradnorm_ood

    Example:
        >>> from farther.methods import create
        >>> from farther.methods.examples import toy_regions
        >>> create("gradnorm").score(
        ...     toy_regions(features=[[3.0, 1.0]], logits=[[0.0, 100.0]])
        ... )  # 4 · (½ + ½)
        array([4.])
    """

    publication: ClassVar[Publication | None] = Publication(
        "On the Importance of Gradients for Detecting Distributional Shifts in the Wild",
        2021,
        "https://arxiv.org/abs/2110.00218",
        code="https://github.com/deeplearning-wisc/gradnorm_ood",
    )
    title: ClassVar[str] = "GradNorm"
    needs: ClassVar[frozenset[str]] = frozenset({"features", "logits"})
    temperature: PositiveFloat = 1.0
    background: Background = "drop"

    def _score(self, rows: Rows) -> Array:
        xp = rows.xp
        temperature = rows.number(self.temperature)
        p = softmax(rows.logits(self.background) / temperature)
        uniform = rows.number(1 / int(p.shape[1]))
        outputs = xp.sum(xp.abs(p - uniform), axis=1)
        return xp.sum(xp.abs(self._vectors(rows)), axis=1) * outputs / temperature
