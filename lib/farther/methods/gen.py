"""Generalized entropy."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field, PositiveInt

from farther.methods.arrays import Array, at_largest, replaced, row_sums, sigmoid, softmax
from farther.methods.base import Publication, register
from farther.methods.logits import Activation, LogitsMethod
from farther.methods.rows import Rows


@register("gen")
class GEN(LogitsMethod):
    """Minus a generalized entropy of the class probabilities: their distance from one-hot.

    Formula:
        score = − Σ_c p_c^γ (1 − p_c)^γ, over the m largest of p = softmax(z); with
        `activation="detector"` on a sigmoid head, p = sigmoid(z)

    Args:
        gamma: γ, the exponent, above 0 and at most 1; None takes the protocol's.
        m: Number of the largest probabilities that count; None takes all, or with
            `protocol="published-code"` as many as there are known classes.
        protocol: "paper": γ = 1/2; "published-code": γ = 0.1, and the background logit counts.
        activation: "softmax" over the classes, or "detector": the head's own.

    References:
        Liu et al., "GEN: Pushing the Limits of Softmax-Based Out-of-Distribution Detection", 2023,
        https://openaccess.thecvf.com/content/CVPR2023/html/Liu_GEN_Pushing_the_Limits_of_Softmax-Based_Out-of-Distribution_Detection_CVPR_2023_paper.html
        Code: https://github.com/XixiLiu95/GEN

        FMIYC, Eq. 16 and 17, where γ is called λ.

    Example:
        >>> from farther.methods import create
        >>> from farther.methods.examples import toy_regions
        >>> create("gen").score(toy_regions(logits=[[0.0, 0.0]]))  # 2 (½ · ½)^½
        array([-1.])
    """

    publication: ClassVar[Publication | None] = Publication(
        "GEN: Pushing the Limits of Softmax-Based Out-of-Distribution Detection",
        2023,
        "https://openaccess.thecvf.com/content/CVPR2023/html/Liu_GEN_Pushing_the_Limits_of_Softmax-Based_Out-of-Distribution_Detection_CVPR_2023_paper.html",
        code="https://github.com/XixiLiu95/GEN",
    )
    title: ClassVar[str] = "GEN"
    aliases: ClassVar[tuple[str, ...]] = ("Generalised entropy", "Generalized entropy")
    needs: ClassVar[frozenset[str]] = frozenset({"logits"})
    gamma: Annotated[float, Field(gt=0, le=1)] | None = None
    m: PositiveInt | None = None
    activation: Activation = "softmax"

    def _score(self, rows: Rows) -> Array:
        z = rows.logits(self.counted_background, self.activation)
        if rows.is_sigmoid(self.activation):
            p = sigmoid(z)
            rest = sigmoid(-z)
        else:
            p = softmax(z)
            # near p = 1, 1 − p is rounding only; the sum of the other probabilities is accurate,
            # and γ < 1 amplifies it
            sure = p > 0.5
            rest = replaced(1 - p, sure, row_sums(p * ~sure)[:, None])
        gamma = self.gamma
        m = self.m
        if gamma is None:
            gamma = 0.5 if self.protocol == "paper" else 0.1
        if m is None and self.protocol == "published-code":
            m = len(rows.header.known_classes)
        terms = p * rest
        terms **= rows.number(gamma)
        if m is not None and m < terms.shape[1]:
            terms = at_largest(terms, p, m)
        return -row_sums(terms)
