"""The detector's own uncertainty."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic.dataclasses import dataclass

from farther.methods.base import Method, register
from farther.registry import STRICT
from farther.tables import Regions


@register("uncertainty")
@dataclass(config=STRICT, kw_only=True)
class Uncertainty(Method):
    """Minus the uncertainty that the detector itself gave each region.

    For detectors that estimate their uncertainty (Monte Carlo dropout, an ensemble, a variance head): the values are
    imported with the detections and evaluated as the other scores are.

    Formula:
        score = − u_i, u_i the uncertainty of region i, higher for less certain

    References:
        The detector's: farther computes nothing.

    Example:
        >>> from farther.methods import create
        >>> from farther.methods.examples import toy_regions
        >>> create("uncertainty").score(toy_regions(uncertainty=[0.25, 0.5]))
        array([-0.25, -0.5 ])
    """

    title: ClassVar[str] = "Uncertainty"
    needs: ClassVar[frozenset[str]] = frozenset({"uncertainty"})

    def _score(self, regions: Regions) -> np.ndarray:
        return -np.asarray(regions.uncertainty, dtype=np.float64)
