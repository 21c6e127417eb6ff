"""Entropy of the class probabilities."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic.dataclasses import dataclass

from farther.methods.base import register
from farther.methods.logits import LogitsMethod, row_sums, sigmoid, softplus
from farther.registry import STRICT


@register("entropy")
@dataclass(config=STRICT, kw_only=True)
class Entropy(LogitsMethod):
    """Minus the entropy of the class probabilities.

    SAOD takes the background for a class where there is one: `background="keep"` does.

    Formula:
        score = Σ_c p_c log p_c, with p = softmax(c); with `activation="detector"` on a sigmoid head, the mean over the
        classes of p_c log p_c + (1 − p_c) log(1 − p_c), with p = sigmoid(c)

    Source:
        Oksuz et al., "Towards Building Self-Aware Object Detectors via Reliable Uncertainty Quantification and
        Calibration", 2023, Eq. A.6 and A.17.
    """

    title: ClassVar[str] = "Entropy"

    def _softmax_score(self, logits: np.ndarray) -> np.ndarray:
        logits -= logits.max(axis=1, keepdims=True)
        powers = np.exp(logits)
        total = row_sums(powers)
        powers *= logits
        return row_sums(powers) / total - np.log(total)

    def _sigmoid_score(self, logits: np.ndarray) -> np.ndarray:
        return -(sigmoid(logits) * softplus(-logits) + sigmoid(-logits) * softplus(logits)).mean(axis=1)
