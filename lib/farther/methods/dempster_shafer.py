"""Dempster-Shafer uncertainty."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from farther.methods.arrays import Array, sigmoid
from farther.methods.base import Publication, register
from farther.methods.logits import LogitsMethod
from farther.methods.publications import SAOD
from farther.methods.rows import Rows


@register("dempster_shafer")
class DempsterShafer(LogitsMethod):
    """Minus the uncertainty left when the logits are read as evidence.

    It ranks regions as the energy does.

    SAOD counts the background of a softmax head as one more class, in its equations and in its
    code; its tables are computed with `background="keep"` here.

    Formula:
        score = − C / (C + Σ_c exp(z_c)), C the number of classes

    References:
        Oksuz et al., "Towards Building Self-Aware Object Detectors via Reliable Uncertainty
        Quantification and Calibration" (SAOD), 2023, Eq. A.7 and A.8, arXiv:2307.00934. Code:
        https://github.com/fiveai/saod

    Example:
        >>> from farther.methods import create
        >>> from farther.methods.examples import toy_regions
        >>> create("dempster_shafer").score(toy_regions(logits=[[0.0, 0.0]]))
        array([-0.5])
    """

    publication: ClassVar[Publication | None] = SAOD
    title: ClassVar[str] = "Dempster–Shafer"
    aliases: ClassVar[tuple[str, ...]] = ("DS",)
    needs: ClassVar[frozenset[str]] = frozenset({"logits"})

    def _score(self, rows: Rows) -> Array:
        classes = rows.classes(self.counted_background)
        return -sigmoid(rows.number(float(np.log(classes))) - rows.energy(self.counted_background))
