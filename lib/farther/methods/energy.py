"""Energy score."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import PositiveFloat

from farther.methods.base import register
from farther.methods.logits import Activation, LogitsMethod, class_logits, energy, is_sigmoid, log_sum_exp, softplus
from farther.tables import Regions


@register("energy")
class Energy(LogitsMethod):
    """The negative free energy of the logits.

    Formula:
        score = T · log Σ_c exp(z_c / T); with `activation="detector"` on a sigmoid head, the joint energy
        T · Σ_c log(1 + exp(z_c / T))

    Args:
        temperature: T, above 0.
        activation: "softmax" over the classes, or "detector": the head's own.

    References:
        Liu et al., "Energy-based Out-of-distribution Detection", 2020, arXiv:2010.03759. Code:
        https://github.com/wetliu/energy_ood

        Joint energy: Wang et al., "Can multi-label classification networks know what they don't know?", 2021,
        arXiv:2109.14162.

        FMIYC, Eq. 15 (with the opposite sign).

    Example:
        >>> from farther.methods import create
        >>> from farther.methods.examples import toy_regions
        >>> create("energy").score(toy_regions(logits=[[0.0, 0.0]])).round(4)  # log 2
        array([0.6931])
    """

    title: ClassVar[str] = "Energy"
    needs: ClassVar[frozenset[str]] = frozenset({"logits"})
    temperature: PositiveFloat = 1.0
    activation: Activation = "softmax"

    def _score(self, regions: Regions) -> np.ndarray:
        if is_sigmoid(regions, self.activation):
            z = class_logits(regions, self.counted_background, self.activation)
            return self.temperature * softplus(z / self.temperature).sum(axis=1)
        if self.temperature == 1:
            return energy(regions, self.counted_background)
        return self.temperature * log_sum_exp(class_logits(regions, self.counted_background) / self.temperature)
