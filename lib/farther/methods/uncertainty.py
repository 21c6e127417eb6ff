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

    For a detector that estimates its uncertainty (Monte Carlo dropout, an ensemble, a variance head): its numbers are
    imported with its detections and judged as the other scores are.

    Formula:
        score = − u, with u the region's uncertainty, higher for less certain

    Source:
        The detector's; farther computes nothing.
    """

    title: ClassVar[str] = "Uncertainty"
    needs: ClassVar[frozenset[str]] = frozenset({"uncertainty"})

    def _score(self, regions: Regions) -> np.ndarray:
        return -np.asarray(regions.uncertainty, dtype=np.float64)
