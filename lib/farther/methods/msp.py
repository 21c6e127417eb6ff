"""Maximum softmax probability."""

from __future__ import annotations

from typing import ClassVar

from farther.methods.arrays import Array, exp_of_own, row_sums, sigmoid
from farther.methods.base import Publication, register
from farther.methods.logits import Activation, LogitsMethod
from farther.methods.rows import Rows


@register("msp")
class MSP(LogitsMethod):
    """The largest class probability.

    Formula:
        score = max_c p_c, with p = softmax(z); with `activation="detector"` on a sigmoid head,
        max_c sigmoid(z_c)

    Args:
        activation: "softmax" over the classes, or "detector": the head's own.

    References:
        Hendrycks and Gimpel, "A Baseline for Detecting Misclassified and Out-of-Distribution
        Examples in Neural Networks", 2017, arXiv:1610.02136. Code:
        https://github.com/hendrycks/error-detection

        FMIYC, Eq. 14.

    Example:
        >>> from farther.methods import create
        >>> from farther.methods.examples import toy_regions
        >>> create("msp").score(toy_regions(logits=[[0.0, 0.0], [0.0, 100.0]]))
        array([0.5, 1. ])
    """

    publication: ClassVar[Publication | None] = Publication(
        "A Baseline for Detecting Misclassified and Out-of-Distribution Examples in Neural "
        "Networks",
        2017,
        "https://arxiv.org/abs/1610.02136",
        code="https://github.com/hendrycks/error-detection",
    )
    title: ClassVar[str] = "MSP"
    aliases: ClassVar[tuple[str, ...]] = ("MaxSoftmax", "Maximum softmax probability")
    needs: ClassVar[frozenset[str]] = frozenset({"logits"})
    activation: Activation = "softmax"

    def _score(self, rows: Rows) -> Array:
        z = rows.logits(self.counted_background, self.activation)
        xp = rows.xp
        if rows.is_sigmoid(self.activation):
            return sigmoid(xp.max(z, axis=1))
        z -= xp.max(z, axis=1, keepdims=True)
        return 1 / row_sums(exp_of_own(z))
