"""Energy score."""

from __future__ import annotations

from typing import ClassVar

from pydantic import PositiveFloat

from farther.methods.arrays import Array, log_sum_exp, softplus
from farther.methods.base import Publication, register
from farther.methods.logits import Activation, LogitsMethod
from farther.methods.rows import Rows


@register("energy")
class Energy(LogitsMethod):
    """The negative free energy of the logits.

    Formula:
        score = T · log Σ_c exp(z_c / T); with `activation="detector"` on a sigmoid head, the joint
        energy T · Σ_c log(1 + exp(z_c / T))

    Args:
        temperature: T, above 0.
        activation: "softmax" over the classes, or "detector": the head's own.

    References:
        Liu et al., "Energy-based Out-of-distribution Detection", 2020, arXiv:2010.03759. Code:
        https://github.com/wetliu/energy_ood

        Joint energy: Wang et al., "Can multi-label classification networks know what they don't
            know?", 2021,
        arXiv:2109.14162.

        FMIYC, Eq. 15 (with the opposite sign).

    Example:
        >>> from farther.methods import create
        >>> from farther.methods.examples import toy_regions
        >>> create("energy").score(toy_regions(logits=[[0.0, 0.0]])).round(4)  # log 2
        array([0.6931])
    """

    publication: ClassVar[Publication | None] = Publication(
        "Energy-based Out-of-distribution Detection",
        2020,
        "https://arxiv.org/abs/2010.03759",
        code="https://github.com/wetliu/energy_ood",
    )
    title: ClassVar[str] = "Energy"
    aliases: ClassVar[tuple[str, ...]] = ("EBO", "EnergyBased", "Energy score")
    published_entries: ClassVar[dict[str, tuple[str, str]]] = {
        "RankFeat": (
            "rankfeat: {method: energy, pass: rankfeat}",
            "rankfeat: {kind: rankfeat}",
        ),
    }
    needs: ClassVar[frozenset[str]] = frozenset({"logits"})
    temperature: PositiveFloat = 1.0
    activation: Activation = "softmax"

    def _score(self, rows: Rows) -> Array:
        temperature = rows.number(self.temperature)
        if rows.is_sigmoid(self.activation):
            z = rows.logits(self.counted_background, self.activation)
            return temperature * rows.xp.sum(softplus(z / temperature), axis=1)
        if self.temperature == 1:
            return rows.energy(self.counted_background)
        return temperature * log_sum_exp(rows.logits(self.counted_background) / temperature)
