"""Dempster-Shafer uncertainty."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic.dataclasses import dataclass

from farther.methods.base import register
from farther.methods.logits import ClassesMethod, class_columns, energies, sigmoid
from farther.registry import STRICT
from farther.tables import Regions


@register("dempster_shafer")
@dataclass(config=STRICT, kw_only=True)
class DempsterShafer(ClassesMethod):
    """Minus the uncertainty that is left when the logits are taken for evidence. It ranks as the energy does.

    SAOD takes the background for a class where there is one: `background="keep"` does.

    Formula:
        score = − C / (C + Σ_c exp(c_c))

    Source:
        Oksuz et al., "Towards Building Self-Aware Object Detectors via Reliable Uncertainty Quantification and
        Calibration", 2023, Eq. A.7 and A.8.
    """

    title: ClassVar[str] = "Dempster–Shafer"
    needs: ClassVar[frozenset[str]] = frozenset({"logits"})

    def _score(self, regions: Regions) -> np.ndarray:
        classes = len(class_columns(regions.header, self.background))
        return -sigmoid(np.log(classes) - energies(regions, self.background))
