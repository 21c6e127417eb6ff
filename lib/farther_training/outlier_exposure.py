"""Outlier exposure: images of no class, for which the classifier learns to be undecided."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

import numpy as np
from pydantic import PositiveFloat
from pydantic.dataclasses import dataclass
from torch import Tensor

from farther.datasets.image_folder import ENDINGS
from farther.errors import DataError
from farther.images.read import load
from farther.registry import STRICT
from farther.tables.files import digest
from farther.tables.folders import listed


@dataclass(config=STRICT, kw_only=True)
class OutlierExposure:
    """Adds λ times the cross-entropy of the uniform distribution to the predictions for outliers.

    Args:
        folder: Folder of the outliers, at any depth. They must not be images that OOD detection is tested on.
        weight: λ; 0.5 for images in the paper.

    References:
        Hendrycks et al., "Deep Anomaly Detection with Outlier Exposure", 2019, Section 3 and 4.3, arXiv:1812.04606.
        Code: https://github.com/hendrycks/outlier-exposure
    """

    folder: Path
    weight: PositiveFloat = 0.5

    @cached_property
    def files(self) -> list[Path]:
        """The image files, sorted.

        Raises:
            DataError: there is none.
        """
        found = [path for path in listed(self.folder, "**/*") if path.suffix.lower() in ENDINGS]
        if not found:
            raise DataError(f"no images here; known extensions: {', '.join(ENDINGS)}", file=self.folder)
        return found

    def content(self) -> str:
        """Digest of all files."""
        return digest(*self.files)

    def images(self, count: int, random: np.random.Generator) -> list[np.ndarray]:
        """Random images, uint8 (H, W, 3) each; DataError if one cannot be read."""
        return [load(self.files[row]) for row in random.integers(len(self.files), size=count)]

    def loss(self, logits: Tensor) -> Tensor:
        """−(λ / K) Σ_c log softmax(z)_c, mean over outliers, of logits (N, K)."""
        return -self.weight * logits.log_softmax(dim=1).mean()
