"""Entropy of the class probabilities."""

from __future__ import annotations

from typing import ClassVar, Literal

from farther.methods.arrays import Array, row_sums, sigmoid, softplus
from farther.methods.base import Publication, register
from farther.methods.logits import Activation, LogitsMethod
from farther.methods.publications import SAOD
from farther.methods.rows import Rows


@register("entropy")
class Entropy(LogitsMethod):
    """Minus the entropy of the class probabilities.

    SAOD counts the background of a softmax head as one more class, in its equations and in its
    code; its tables are computed with `background="keep"` here.

    Formula:
        score = Σ_c p_c log p_c, with p = softmax(z); with `activation="detector"` on a sigmoid
        head, the mean over the classes of p_c log p_c + (1 − p_c) log(1 − p_c), with p =
        sigmoid(z), or that of the class with the largest z

    Args:
        activation: "softmax" over the classes, or "detector": the head's own.
        sigmoids: "mean" over the classes, or "largest": of the most probable class; with
            `activation="detector"`.

    References:
        Oksuz et al., "Towards Building Self-Aware Object Detectors via Reliable Uncertainty
        Quantification and Calibration" (SAOD), 2023, Eq. A.6, A.17 and A.18, arXiv:2307.00934.
        Code: https://github.com/fiveai/saod

    Example:
        >>> from farther.methods import create
        >>> from farther.methods.examples import toy_regions
        >>> create("entropy").score(toy_regions(logits=[[0.0, 0.0]])).round(4)  # −log 2
        array([-0.6931])
    """

    publication: ClassVar[Publication | None] = SAOD
    title: ClassVar[str] = "Entropy"
    aliases: ClassVar[tuple[str, ...]] = ("Softmax entropy", "Shannon entropy")
    needs: ClassVar[frozenset[str]] = frozenset({"logits"})
    activation: Activation = "softmax"
    sigmoids: Literal["mean", "largest"] = "mean"

    def _score(self, rows: Rows) -> Array:
        z = rows.logits(self.counted_background, self.activation)
        xp = rows.xp
        if rows.is_sigmoid(self.activation):
            if self.sigmoids == "largest":
                z = xp.max(z, axis=1, keepdims=True)
            return -xp.mean(sigmoid(z) * softplus(-z) + sigmoid(-z) * softplus(z), axis=1)
        z -= xp.max(z, axis=1, keepdims=True)
        powers = xp.exp(z)
        total = row_sums(powers)
        powers *= z
        return row_sums(powers) / total - xp.log(total)
