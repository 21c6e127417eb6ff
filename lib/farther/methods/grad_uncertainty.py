"""Size of the last layer's gradient for a label of all classes at once."""

from __future__ import annotations

from typing import ClassVar

from farther.methods.arrays import Array, softmax, squared_norms
from farther.methods.base import Method, Publication, register
from farther.methods.logits import Background
from farther.methods.rows import Rows


@register("grad_uncertainty")
class GradUncertainty(Method):
    """The squared norm of the last layer's gradient for a label of all classes at once.

    The loss is the binary cross-entropy of the probabilities and a vector of ones, which no
    training region had. Its gradient is the outer product of (h, 1) and C p − 1, so no backward
    pass is needed. It vanishes where all classes are equally likely.

    The paper measures this of every layer, and learns from known and unknown images how the layers
    together tell them apart. A region has no gradients of inner layers, so this is the last one
    alone, unlearned, as in pytorch-ood.

    Formula:
        score = ‖∂L / ∂(W, b)‖² = (‖h‖² + 1) · ‖C p − 1‖², L = −Σ_c log p_c, p = softmax(z), C the
        number of classes

    Args:
        background: "drop" leaves the background logit out, "keep" counts it as one more class.

    References:
        Lee and AlRegib, "Gradients as a Measure of Uncertainty in Neural Networks", 2020,
        arXiv:2008.08030

    Example:
        >>> from farther.methods import create
        >>> from farther.methods.examples import toy_regions
        >>> create("grad_uncertainty").score(
        ...     toy_regions(features=[[3.0, 1.0]], logits=[[0.0, 100.0]])
        ... )  # (10 + 1) · (1 + 1)
        array([22.])
    """

    publication: ClassVar[Publication | None] = Publication(
        "Gradients as a Measure of Uncertainty in Neural Networks",
        2020,
        "https://arxiv.org/abs/2008.08030",
    )
    title: ClassVar[str] = "GradUncertainty"
    aliases: ClassVar[tuple[str, ...]] = ("Gradient uncertainty",)
    needs: ClassVar[frozenset[str]] = frozenset({"features", "logits"})
    background: Background = "drop"

    def _score(self, rows: Rows) -> Array:
        p = softmax(rows.logits(self.background))
        outputs = squared_norms(p * int(p.shape[1]) - 1)
        return (squared_norms(self._vectors(rows)) + 1) * outputs
