"""The largest class probability (MSP), and the largest logit (MLS)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic.dataclasses import dataclass

from farther.methods.base import Method, register
from farther.methods.logits import Activation, Background, LogitsMethod, class_logits, is_sigmoid, row_sums, sigmoid
from farther.registry import STRICT
from farther.tables import Regions


@register("msp")
@dataclass(config=STRICT, kw_only=True)
class MSP(LogitsMethod):
    """The largest class probability.

    Formula:
        score = max_c p_c, with p = softmax(z); with `activation="detector"` on a sigmoid head, max_c sigmoid(z_c)

    Args:
        activation: "softmax" over the classes, or "detector": the head's own.

    References:
        Hendrycks and Gimpel, "A Baseline for Detecting Misclassified and Out-of-Distribution Examples in Neural
        Networks", 2017, arXiv:1610.02136. Code: https://github.com/hendrycks/error-detection

        FMIYC, Eq. 14.

    Example:
        >>> from farther.methods import create
        >>> from farther.methods.examples import toy_regions
        >>> create("msp").score(toy_regions(logits=[[0.0, 0.0], [0.0, 100.0]]))
        array([0.5, 1. ])
    """

    title: ClassVar[str] = "MSP"
    needs: ClassVar[frozenset[str]] = frozenset({"logits"})
    activation: Activation = "softmax"

    def _score(self, regions: Regions) -> np.ndarray:
        z = class_logits(regions, self.counted_background, self.activation)
        if is_sigmoid(regions, self.activation):
            return sigmoid(z.max(axis=1))
        z -= z.max(axis=1, keepdims=True)
        return 1 / row_sums(np.exp(z, out=z))


@register("mls")
@dataclass(config=STRICT, kw_only=True)
class MLS(Method):
    """The largest logit.

    Formula:
        score = max_c z_c

    Args:
        background: "drop" leaves the background logit out, "keep" counts it as one more class.

    References:
        Hendrycks et al., "Scaling Out-of-Distribution Detection for Real-World Settings", 2022, arXiv:1911.11132. Code:
        https://github.com/hendrycks/anomaly-seg

        "MLV" of Recalcati et al., "Toward a Realistic Benchmark for Out-of-Distribution Detection", 2023,
        arXiv:2404.10474.

    Example:
        >>> from farther.methods import create
        >>> from farther.methods.examples import toy_regions
        >>> create("mls").score(toy_regions(logits=[[1.0, 3.0], [2.0, 0.0]]))
        array([3., 2.])
    """

    title: ClassVar[str] = "MLS"
    needs: ClassVar[frozenset[str]] = frozenset({"logits"})
    background: Background = "drop"

    def _score(self, regions: Regions) -> np.ndarray:
        return class_logits(regions, self.background).max(axis=1)
