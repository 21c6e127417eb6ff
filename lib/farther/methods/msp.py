"""Maximum softmax probability."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic.dataclasses import dataclass

from farther.methods.base import register
from farther.methods.logits import LogitsMethod, row_sums, sigmoid
from farther.registry import STRICT


@register("msp")
@dataclass(config=STRICT, kw_only=True)
class MSP(LogitsMethod):
    """The largest class probability.

    Formula:
        score = max_c p_c, with p = softmax(c); with `activation="detector"` on a sigmoid head, max_c sigmoid(c_c)

    Source:
        Hendrycks and Gimpel, "A Baseline for Detecting Misclassified and Out-of-Distribution Examples in Neural
        Networks", 2016; FMIYC, Eq. 14.
    """

    title: ClassVar[str] = "MSP"

    def _softmax_score(self, logits: np.ndarray) -> np.ndarray:
        logits -= logits.max(axis=1, keepdims=True)
        return 1 / row_sums(np.exp(logits, out=logits))

    def _sigmoid_score(self, logits: np.ndarray) -> np.ndarray:
        return sigmoid(logits.max(axis=1))
