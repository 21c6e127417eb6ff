"""Uncertainty of the box, alone and joined with that of the class."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from pydantic import PositiveFloat

from farther.errors import DataError
from farther.methods.base import FitError, Method, Publication, RegionsLike, register
from farther.methods.entropy import Entropy
from farther.methods.publications import SAOD
from farther.methods.rows import Rows
from farther.tables import Regions

#: Why the methods of this module have no form in PyTorch.
BOXES = "it reads variances of boxes, each of which is checked"


def box_entropy(rows: Rows | Regions) -> np.ndarray:
    """H(Σ) of the box's Gaussian, ndarray of shape (n,) (SAOD, Eq. A.12).

    Raises:
        DataError: a variance is not above 0.
    """
    variance = Rows.of(rows).vectors("box_variance")
    wrong = np.flatnonzero(~(variance > 0).all(axis=1))
    if len(wrong):
        raise DataError(
            f"row {wrong[0]}: variances are above 0, found {variance[wrong[0]]}",
            field="box_variance",
        )
    return 2 + 2 * np.log(2 * np.pi) + 0.5 * np.log(variance).sum(axis=1)


@register("box_uncertainty")
class BoxUncertainty(Method):
    """Minus the uncertainty of a region's box.

    For detectors that predict its variance, or of several passes.

    The detector predicts a Gaussian with diagonal covariance Σ, or Σ is the variance of each
    coordinate over the passes of dropout sampling (`pass: dropout`). Its determinant and its
    entropy rank regions alike. Boxes are clipped to the image, so that a side at its border hardly
    varies over passes, which moves the determinant more than the trace.

    Formula:
        score = − |Σ| = − Π_j σ_j², − tr(Σ) = − Σ_j σ_j², or − H(Σ) = − (2 + 2 log 2π + ½ log |Σ|)

    Args:
        measure: "determinant", "trace" or "entropy".

    References:
        Oksuz et al., "Towards Building Self-Aware Object Detectors via Reliable Uncertainty
        Quantification and Calibration" (SAOD), 2023, Eq. A.10 to A.12, arXiv:2307.00934. Code:
        https://github.com/fiveai/saod

    Example:
        >>> from farther.methods import create
        >>> from farther.methods.examples import toy_regions
        >>> regions = toy_regions(box_variance=[[1.0, 2.0, 1.0, 2.0]])
        >>> [
        ...     create("box_uncertainty", measure=m).score(regions).item()
        ...     for m in ("determinant", "trace")
        ... ]
        [-4.0, -6.0]
    """

    publication: ClassVar[Publication | None] = SAOD
    title: ClassVar[str] = "Box uncertainty"
    needs: ClassVar[frozenset[str]] = frozenset({"box_variance"})
    only_numpy: ClassVar[str] = BOXES
    measure: Literal["determinant", "trace", "entropy"] = "determinant"

    def _score(self, rows: Rows) -> np.ndarray:
        entropy = box_entropy(rows)
        if self.measure == "entropy":
            return -entropy
        variance = rows.vectors("box_variance")
        return -(variance.prod(axis=1) if self.measure == "determinant" else variance.sum(axis=1))


@register("joint_entropy")
class JointEntropy(Entropy):
    """Minus the entropy of class and box together.

    For detectors that predict the variance of the box.

    Formula:
        score = − (w · H(p) + H(Σ)), p = softmax(z); with `normalise`, both entropies are first
        mapped so that they reach from 0 to 1 on the fitted regions

    Args:
        weight: w. 1 is the entropy of the joint distribution; 4 balances one class and four
            coordinates.
        normalise: Map both entropies to 0 … 1. The paper takes their extremes on ID validation;
            here they are those of the regions that the method is fitted on.

    Attributes:
        lowest_, highest_: Smallest and largest H(p) and H(Σ) of the fitted regions, ndarray of
            shape (2,).

    References:
        Oksuz et al., "Towards Building Self-Aware Object Detectors via Reliable Uncertainty
        Quantification and Calibration" (SAOD), 2023, Appendix C.3.2 and Table A.10,
        arXiv:2307.00934. Code: https://github.com/fiveai/saod

    Example:
        >>> from farther.methods import create
        >>> from farther.methods.examples import toy_regions
        >>> train = toy_regions(
        ...     logits=[[9.0, 0.0], [0.0, 0.0]], box_variance=[[1.0] * 4, [4.0] * 4]
        ... )
        >>> create("joint_entropy", normalise=True).fit(train).score(train).round(2)
        array([-0., -2.])
    """

    publication: ClassVar[Publication | None] = SAOD
    title: ClassVar[str] = "Joint entropy"
    needs: ClassVar[frozenset[str]] = frozenset({"logits", "box_variance"})
    only_numpy: ClassVar[str] = BOXES
    weight: PositiveFloat = 1.0
    normalise: bool = False

    def _fit(self, regions: RegionsLike) -> None:
        entropies = [self._entropies(Rows.of(block)) for block in self._blocks(regions)]
        self.lowest_ = np.min([each.min(axis=0) for each in entropies], axis=0)
        self.highest_ = np.max([each.max(axis=0) for each in entropies], axis=0)
        if self.normalise and not (self.highest_ > self.lowest_).all():
            raise FitError(f"{self.name}: all regions have the same entropy")

    def _entropies(self, rows: Rows) -> np.ndarray:
        """H(p) and H(Σ), ndarray of shape (n, 2)."""
        return np.stack([-super()._score(rows), box_entropy(rows)], axis=1)

    def _score(self, rows: Rows) -> np.ndarray:
        entropies = self._entropies(rows)
        if self.normalise:
            entropies = (entropies - self.lowest_) / (self.highest_ - self.lowest_)
        return -(self.weight * entropies[:, 0] + entropies[:, 1])
