"""Activation scaling."""

from __future__ import annotations

from typing import ClassVar

from farther.methods.activations import Percentile, kept_count, largest_values, sharpening
from farther.methods.arrays import Array, log_sum_exp
from farther.methods.base import Method, Publication, register
from farther.methods.logits import Background
from farther.methods.rows import Rows


@register("scale")
class Scale(Method):
    """The energy after all activations are scaled up.

    The scale is the larger the smaller the share of the largest activations is.

    Formula:
        score = log Σ_c exp(w_c · h · exp(s1 / s2) + b_c), s1 = Σ_d h_d, s2 the sum of the largest
        (100 − p) per cent of the region's activations

    Args:
        percentile: p, in per cent.
        background: "drop" leaves the background logit out, "keep" counts it as one more class.

    References:
        Xu et al., "Scaling for Training Time and Post-hoc Out-of-distribution Detection
        Enhancement", 2024, arXiv:2310.00227. Code: https://github.com/kai422/SCALE

    Example:
        >>> from farther.methods import create
        >>> from farther.methods.examples import toy_regions
        >>> create("scale", percentile=50).score(toy_regions(features=[[1.0, 1.0]])).round(
        ...     4
        ... )  # log 2 + exp(2 / 1)
        array([8.0822])
    """

    publication: ClassVar[Publication | None] = Publication(
        "Scaling for Training Time and Post-hoc Out-of-distribution Detection Enhancement",
        2024,
        "https://arxiv.org/abs/2310.00227",
        code="https://github.com/kai422/SCALE",
    )
    title: ClassVar[str] = "SCALE"
    needs: ClassVar[frozenset[str]] = frozenset({"features", "last_layer"})
    percentile: Percentile = 85.0
    background: Background = "drop"

    def _score(self, rows: Rows) -> Array:
        weight, bias = rows.last_layer(self.background)
        h = self._vectors(rows)
        xp = rows.xp
        kept = largest_values(h, kept_count(int(h.shape[1]), self.percentile))
        h *= sharpening(xp.sum(h, axis=1), xp.sum(kept, axis=1, dtype=rows.dtype))
        return log_sum_exp(h @ weight.T + bias)
