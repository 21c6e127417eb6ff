"""Virtual outlier synthesis: the scores of a detector that was trained against virtual outliers."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np

from farther.methods.arrays import Array, log_sum_exp
from farther.methods.base import FitError, Method, Publication, RegionsLike, register
from farther.methods.logits import Background, class_columns
from farther.methods.rows import Rows


@register("vos")
class VOS(Method):
    """The energy, plain or weighted, or the output of the detector's head for known and unknown.

    VOS is a training method; its score is the energy of the logits. Its training also fits a small
    head: a weight for each class's share of the energy, and a logistic regression of the energy on
    known (class 1) and unknown (class 0). The header's `detector["vos_head"]` holds it as numbers:
    `energy_weight` (C, the known classes), `weight` (2) and `bias` (2). Without it only the output
    "energy" applies.

    Formula:
        score = log Σ_c exp(z_c); with `output="weighted_energy"`, E = log Σ_c max(e_c, 0) exp(z_c),
        e the energy weights; with `output="logistic"`, the log odds of known: (w_1 − w_0) · E + b_1
        − b_0

    Args:
        output: "energy", "weighted_energy" (pytorch-ood's WeightedEBO) or "logistic".
        background: "drop" leaves the background logit out, "keep" counts it as one more class.

    Attributes:
        energy_weight_: max(e, 0), or ones, ndarray of shape (C,).
        slope_, intercept_: w_1 − w_0 and b_1 − b_0, or 1 and 0.

    References:
        Du et al., "VOS: Learning What You Don't Know by Virtual Outlier Synthesis", 2022,
        arXiv:2202.01197. Code: https://github.com/deeplearning-wisc/vos

        FMIYC, Appendix F.

    Example:
        >>> from farther.methods import create
        >>> from farther.methods.examples import toy_regions
        >>> regions = toy_regions(logits=[[0.0, 0.0]])
        >>> create("vos").fit(regions).score(regions).round(4)  # log 2
        array([0.6931])
    """

    publication: ClassVar[Publication | None] = Publication(
        "VOS: Learning What You Don't Know by Virtual Outlier Synthesis",
        2022,
        "https://arxiv.org/abs/2202.01197",
        code="https://github.com/deeplearning-wisc/vos",
    )
    title: ClassVar[str] = "VOS"
    aliases: ClassVar[tuple[str, ...]] = ("Virtual outlier synthesis",)
    needs: ClassVar[frozenset[str]] = frozenset({"logits"})
    output: Literal["energy", "weighted_energy", "logistic"] = "energy"
    background: Background = "drop"

    def _fit(self, regions: RegionsLike) -> None:
        classes = len(class_columns(regions.header, self.background))
        self.energy_weight_ = np.ones(classes)
        self.slope_ = 1.0
        self.intercept_ = 0.0
        if self.output == "energy":
            return
        head = regions.header.detector.get("vos_head")
        if head is None:
            raise FitError(f"{self.name}: the detector has no vos_head; output='energy' needs none")
        self.energy_weight_ = np.maximum(_numbers(head, "energy_weight", classes), 0.0)
        if not self.energy_weight_.any():
            raise FitError(f"{self.name}: no energy_weight of the detector's vos_head is above 0")
        if self.output == "logistic":
            weight = _numbers(head, "weight", 2)
            bias = _numbers(head, "bias", 2)
            self.slope_ = float(weight[1] - weight[0])
            self.intercept_ = float(bias[1] - bias[0])

    def _score(self, rows: Rows) -> Array:
        xp = rows.xp
        weight = self.energy_weight_
        counts = weight > 0
        log_weight = xp.where(counts, xp.log(xp.where(counts, weight, 1.0)), -xp.inf)
        energy = log_sum_exp(rows.logits(self.background) + log_weight)
        return self.slope_ * energy + self.intercept_


def _numbers(head: Any, field: str, count: int) -> np.ndarray:
    try:
        values = np.asarray(head[field], dtype=np.float64).reshape(-1)
    except (KeyError, TypeError, ValueError):
        raise FitError(f"vos: the detector's vos_head has no numbers {field!r}") from None
    if len(values) != count or not np.isfinite(values).all():
        raise FitError(
            f"vos: vos_head's {field!r}: expected {count} finite numbers, found {values.tolist()}"
        )
    return values
