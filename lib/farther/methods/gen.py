"""Generalized entropy."""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field, PositiveInt

from farther.methods.base import register
from farther.methods.logits import Activation, LogitsMethod, class_logits, is_sigmoid, row_sums, sigmoid, softmax
from farther.tables import Regions


@register("gen")
class GEN(LogitsMethod):
    """Minus a generalized entropy of the class probabilities: their distance from one-hot.

    Formula:
        score = − Σ_c p_c^γ (1 − p_c)^γ, over the m largest of p = softmax(z); with `activation="detector"` on a sigmoid
        head, p = sigmoid(z)

    Args:
        gamma: γ, the exponent, above 0 and at most 1; None takes the protocol's.
        m: Number of the largest probabilities that count; None takes all, or with `protocol="published-code"` as many
            as there are known classes.
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

    title: ClassVar[str] = "GEN"
    needs: ClassVar[frozenset[str]] = frozenset({"logits"})
    gamma: Annotated[float, Field(gt=0, le=1)] | None = None
    m: PositiveInt | None = None
    activation: Activation = "softmax"

    def _score(self, regions: Regions) -> np.ndarray:
        z = class_logits(regions, self.counted_background, self.activation)
        if is_sigmoid(regions, self.activation):
            p, rest = sigmoid(z), sigmoid(-z)
        else:
            p = softmax(z)
            rest = np.subtract(1, p, out=z)
            # near p = 1, 1 − p is rounding only; the sum of the other probabilities is accurate, and γ < 1 amplifies it
            sure = p > 0.5
            np.copyto(rest, row_sums(p * ~sure)[:, None], where=sure)
        gamma, m = self.gamma, self.m
        if gamma is None:
            gamma = 0.5 if self.protocol == "paper" else 0.1
        if m is None and self.protocol == "published-code":
            m = len(regions.header.known_classes)
        terms = np.multiply(p, rest, out=rest)
        terms **= gamma
        if m is not None and m < terms.shape[1]:
            largest = np.argpartition(p, -m, axis=1)[:, -m:]
            terms = np.take_along_axis(terms, largest, axis=1)
        return -row_sums(terms)
