"""Maximum logit score."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic.dataclasses import dataclass

from farther.methods.base import register
from farther.methods.logits import ClassesMethod, class_logits
from farther.registry import STRICT
from farther.tables import Regions


@register("mls")
@dataclass(config=STRICT, kw_only=True)
class MLS(ClassesMethod):
    """The largest logit.

    Formula:
        score = max_c c_c

    Source:
        Hendrycks et al., "Scaling Out-of-Distribution Detection for Real-World Settings", 2022; "MLS" of OpenOOD, "MLV"
        of Recalcati et al.'s realistic benchmark.
    """

    title: ClassVar[str] = "MLS"
    needs: ClassVar[frozenset[str]] = frozenset({"logits"})

    def _score(self, regions: Regions) -> np.ndarray:
        return class_logits(regions, self.background).max(axis=1)
