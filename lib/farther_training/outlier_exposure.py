"""Outlier exposure: images of no class, for which the classifier learns to be undecided."""

from __future__ import annotations

from pydantic import PositiveFloat
from pydantic.dataclasses import dataclass
from torch import Tensor

from farther.naming.registry import STRICT
from farther_training.picture_folder import PictureFolder


@dataclass(config=STRICT, kw_only=True)
class OutlierExposure(PictureFolder):
    """Adds λ times the cross-entropy of the uniform distribution to the predictions for outliers.

    Args:
        folder: Folder of the outliers, at any depth. They must not be images that OOD detection is
            tested on.
        weight: λ; 0.5 for images in the paper.

    References:
        Hendrycks et al., "Deep Anomaly Detection with Outlier Exposure", 2019, Section 3 and 4.3,
        arXiv:1812.04606. Code: https://github.com/hendrycks/outlier-exposure
    """

    weight: PositiveFloat = 0.5

    def loss(self, logits: Tensor) -> Tensor:
        """−(λ / K) Σ_c log softmax(z)_c, mean over outliers, of logits (N, K)."""
        return -self.weight * logits.log_softmax(dim=1).mean()
