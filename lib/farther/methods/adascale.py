"""Scaling by a share of activations that depends on how much a step of the image moves them."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field, NonNegativeFloat

from farther.methods.activations import Percentile, sharpening
from farther.methods.arrays import Array, ascending, at_largest, at_least, log_sum_exp
from farther.methods.base import Method, Publication, RegionsLike, register
from farther.methods.logits import Background
from farther.methods.rows import Rows
from farther.tables.regions import BEFORE

#: A percentage above 0.
Share = Annotated[float, Field(gt=0, le=100)]


@register("adascale")
class AdaSCALE(Method):
    """The energy after scaling, the stronger the less a small step of the image moves activations.

    SCALE and LTS scale by the share of the largest activations, for all regions of the same
    percentile. Here it is low for regions whose large activations move little, as those of known
    objects do, and high for others.

    It reads a pass that stores the features before and after the step: `{kind: perturb, loss:
    max_logit, moved: smallest, share: 0.05, epsilon: 0.11, before: true}`. The paper moves a
    normalised input by 0.5, which is 0.11 of the range of pixels with the deviations of ImageNet.

    Formula:
        score = log Σ_c exp(w_c · h · exp(r) + b_c), r = s1 / s2, s1 = Σ_d max(h_d, 0), s2 the sum
        of the largest (100 − p) per cent of these; with `scaled="logits"`, log Σ_c exp(r² (w_c · h
        + b_c)). p = lowest + (1 − F(Q)) (highest − lowest), F the distribution function of Q over
        training regions, Q = Σ_{d in the largest k1%} max(h'_d, 0) + λ Σ_{d in the largest k2%}
        |h_d − h'_d|, h and h' the features before and after the step

    Args:
        lowest: In per cent, for the largest Q.
        highest: In per cent, for the smallest Q, at least `lowest`.
        k1: In per cent of the activations, at least one.
        k2: In per cent of the activations, at least one.
        weight: λ, at least 0.
        scaled: "activations" (AdaSCALE-A) or "logits" (AdaSCALE-L).
        background: "drop" leaves the background logit out, "keep" counts it as one more class.

    Attributes:
        shifts_: Q of the training regions, ndarray of shape (M,).
        places_: 0 to D − 1, ndarray of shape (D,).

    References:
        Regmi, "AdaSCALE: Adaptive Scaling for OOD Detection", 2025, arXiv:2503.08023. Code:
        https://github.com/sudarshanregmi/AdaSCALE

    Example:
        >>> from farther.methods import create
        >>> from farther.methods.examples import toy_regions
        >>> columns = {"features": [[1.0, 1.0]], "latent.before": [[1.0, 1.0]]}
        >>> adascale = create("adascale", lowest=50, highest=75).fit(toy_regions(**columns))
        >>> adascale.score(toy_regions(**columns)).round(4)  # F is 1, p 50: log 2 + exp(2 / 1)
        array([8.0822])
    """

    publication: ClassVar[Publication | None] = Publication(
        "AdaSCALE: Adaptive Scaling for OOD Detection",
        2025,
        "https://arxiv.org/abs/2503.08023",
        code="https://github.com/sudarshanregmi/AdaSCALE",
    )
    title: ClassVar[str] = "AdaSCALE"
    aliases: ClassVar[tuple[str, ...]] = ("AdaSCALE-A", "Adaptive scaling")
    needs: ClassVar[frozenset[str]] = frozenset({"features", BEFORE, "last_layer"})
    only_float64: ClassVar[str] = "float32 would keep another number of activations"
    lowest: Percentile = 75.0
    highest: Percentile = 85.0
    k1: Share = 5.0
    k2: Share = 1.0
    weight: NonNegativeFloat = 10.0
    scaled: Literal["activations", "logits"] = "activations"
    background: Background = "drop"

    def __post_init__(self) -> None:
        if self.lowest > self.highest:
            problem = f"lowest is {self.lowest:g}, but must be at most highest, {self.highest:g}"
            raise ValueError(problem)

    def _fit(self, regions: RegionsLike) -> None:
        shifts = []
        for block in self._blocks(regions):
            rows = Rows.of(block)
            before = rows.vectors(BEFORE)
            self.places_ = np.arange(before.shape[1], dtype=np.float64)
            shifts.append(self._shifts(before, rows.features))
        self.shifts_ = np.concatenate(shifts)

    def _shifts(self, before: Array, after: Array) -> Array:
        """Q of each row, shape (n,)."""
        width = int(before.shape[1])
        active = at_largest(at_least(after, 0.0), before, max(1, int(width * self.k1 / 100)))
        moved = at_largest(abs(before - after), before, max(1, int(width * self.k2 / 100)))
        return active.sum(1) + self.weight * moved.sum(1)

    def _score(self, rows: Rows) -> Array:
        xp = rows.xp
        h = rows.vectors(BEFORE)
        shifts = self._shifts(h, rows.features)
        share_below = xp.mean(xp.astype(self.shifts_ <= shifts[:, None], rows.dtype), axis=1)
        percent = self.lowest + (1 - share_below) * (self.highest - self.lowest)

        active = at_least(h, 0.0)
        left_out = xp.round(percent * (int(h.shape[1]) / 100))
        is_kept = self.places_ >= left_out[:, None]
        kept = xp.sum(ascending(active) * is_kept, axis=1)
        total = xp.sum(active, axis=1)

        weight, bias = rows.last_layer(self.background)
        if self.scaled == "activations":
            h *= sharpening(total, kept)
            return log_sum_exp(h @ weight.T + bias)
        is_zero = kept == 0
        ratio = xp.where(is_zero, 1.0, total / (kept + is_zero))
        return log_sum_exp((h @ weight.T + bias) * (ratio * ratio)[:, None])
