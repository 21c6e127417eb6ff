"""Logit scaling."""

from __future__ import annotations

from typing import ClassVar

from farther.methods.activations import Percentile, kept_count, largest_values
from farther.methods.arrays import Array, at_least, log_sum_exp
from farther.methods.base import Method, Publication, register
from farther.methods.logits import Background
from farther.methods.rows import Rows


@register("lts")
class LTS(Method):
    """The energy after all logits are scaled up.

    The scale is the larger the smaller the share of the largest activations is. Negative
    activations count as 0 in it, as in the published code; where all of them do, the scale is 1.

    Formula:
        score = log Σ_c exp((s1 / s2)² z_c), s1 = Σ_d max(h_d, 0), s2 the sum of the largest (100 −
        p) per cent of these, at least one

    Args:
        percentile: p, in per cent.
        background: "drop" leaves the background logit out, "keep" counts it as one more class.

    References:
        Djurisic et al., "Logit Scaling for Out-of-Distribution Detection", 2025, arXiv:2409.01175.
        Code: https://github.com/andrijazz/lts

    Example:
        >>> from farther.methods import create
        >>> from farther.methods.examples import toy_regions
        >>> create("lts", percentile=50).score(toy_regions(features=[[1.0, 1.0]])).round(
        ...     4
        ... )  # log 2 + (2 / 1)² · 1
        array([4.6931])
    """

    publication: ClassVar[Publication | None] = Publication(
        "Logit Scaling for Out-of-Distribution Detection",
        2025,
        "https://arxiv.org/abs/2409.01175",
        code="https://github.com/andrijazz/lts",
    )
    title: ClassVar[str] = "LTS"
    aliases: ClassVar[tuple[str, ...]] = ("Logit scaling",)
    needs: ClassVar[frozenset[str]] = frozenset({"features", "logits"})
    percentile: Percentile = 95.0
    background: Background = "drop"

    def _score(self, rows: Rows) -> Array:
        xp = rows.xp
        h = at_least(self._vectors(rows), 0.0)
        kept = largest_values(h, max(1, kept_count(int(h.shape[1]), self.percentile)))
        before = xp.sum(h, axis=1)
        after = xp.sum(kept, axis=1, dtype=rows.dtype)
        is_zero = after == 0
        ratio = xp.where(is_zero, 1.0, before / (after + is_zero))
        return log_sum_exp(rows.logits(self.background) * (ratio * ratio)[:, None])
