"""Dempster-Shafer uncertainty."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic.dataclasses import dataclass

from farther.methods.base import Method, register
from farther.methods.logits import Background, class_columns, energy, sigmoid
from farther.registry import STRICT
from farther.tables import Regions


@register("dempster_shafer")
@dataclass(config=STRICT, kw_only=True)
class DempsterShafer(Method):
    """Minus the uncertainty left when the logits are read as evidence. It ranks regions as the energy does.

    SAOD counts the background as a class where there is one, as `background="keep"` does.

    Formula:
        score = − C / (C + Σ_c exp(z_c)), C the number of classes

    Args:
        background: "drop" leaves the background logit out, "keep" counts it as one more class.

    References:
        Oksuz et al., "Towards Building Self-Aware Object Detectors via Reliable Uncertainty Quantification and
        Calibration" (SAOD), 2023, Eq. A.7 and A.8, arXiv:2307.00934. Code: https://github.com/fiveai/saod

    Example:
        >>> from farther.methods import create
        >>> from farther.methods.examples import toy_regions
        >>> create("dempster_shafer").score(toy_regions(logits=[[0.0, 0.0]]))
        array([-0.5])
    """

    title: ClassVar[str] = "Dempster–Shafer"
    needs: ClassVar[frozenset[str]] = frozenset({"logits"})
    background: Background = "drop"

    def _score(self, regions: Regions) -> np.ndarray:
        classes = len(class_columns(regions.header, self.background))
        return -sigmoid(np.log(classes) - energy(regions, self.background))
