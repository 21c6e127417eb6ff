"""Generalized entropy."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field, PositiveInt
from pydantic.dataclasses import dataclass

from farther.methods.base import register
from farther.methods.logits import LogitsMethod, row_sums, sigmoid, softmax
from farther.registry import STRICT


@register("gen")
@dataclass(config=STRICT, kw_only=True)
class GEN(LogitsMethod):
    """How far the class probabilities are from one-hot, by a generalized entropy.

    Formula:
        score = − Σ_c p_c^γ (1 − p_c)^γ, over the m largest of p = softmax(c); with `activation="detector"` on a sigmoid
        head, p = sigmoid(c)

    Source:
        Liu et al., "GEN: Pushing the Limits of Softmax-Based Out-of-Distribution Detection", 2023; FMIYC, Eq. 16
        and 17, which calls γ λ.

    Args:
        gamma: γ, the exponent, above 0 and at most 1; None takes the protocol's.
        m: How many of the largest probabilities count; None takes all.
        protocol: "paper": γ = 1/2; "published-code": γ = 0.1.
    """

    title: ClassVar[str] = "GEN"
    gamma: Annotated[float, Field(gt=0, le=1)] | None = None
    m: PositiveInt | None = None
    protocol: Literal["paper", "published-code"] = "paper"

    def _softmax_score(self, logits: np.ndarray) -> np.ndarray:
        probabilities = softmax(logits)
        rest = np.subtract(1, probabilities, out=logits)
        # 1 − p of a sure class is all rounding; the sum of the others is not, and a small γ sees the difference
        sure = probabilities > 0.5
        np.copyto(rest, row_sums(probabilities * ~sure)[:, None], where=sure)
        return self._entropy(probabilities, rest)

    def _sigmoid_score(self, logits: np.ndarray) -> np.ndarray:
        return self._entropy(sigmoid(logits), sigmoid(-logits))

    def _entropy(self, probabilities: np.ndarray, rest: np.ndarray) -> np.ndarray:
        gamma = self.gamma
        if gamma is None:
            gamma = 0.5 if self.protocol == "paper" else 0.1
        terms = np.multiply(probabilities, rest, out=rest)
        terms **= gamma
        if self.m is not None and self.m < terms.shape[1]:
            chosen = np.argpartition(probabilities, -self.m, axis=1)[:, -self.m :]
            terms = np.take_along_axis(terms, chosen, axis=1)
        return -row_sums(terms)
