"""Weights over the images of a method's case on a split."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from farther.metrics.statistics.bootstrap import ImageDraws
from farther.metrics.weighting import ImageWeights, RowWeights


@dataclass(frozen=True)
class Weights:
    """How often images count: as often as they are drawn in each of B replicates, or once.

    All that its methods return is as formulas of `farther.metrics` take it: None where each image
    counts once.

    Args:
        id_images: Draws of the images of the ID split.
        images: Draws of the images of the OOD split.
        spectrum: Draws of the images of the ID split and the shifted splits.
        mixed: Weights of the images of `TestSplit.mixed`, shape (B, I).
        scenes: Weights of the objects of `TestSplit.pairs`: those of their scenes, shape (B, M).
    """

    id_images: ImageDraws | None = None
    images: ImageDraws | None = None
    spectrum: ImageDraws | None = None
    mixed: ImageWeights | None = None
    scenes: ImageWeights | None = None

    @property
    def are_drawn(self) -> bool:
        """Whether they are those of replicates."""
        return self.images is not None

    def of(self, images: np.ndarray) -> ImageWeights | None:
        """Weights of images of the OOD split, shape (B, I)."""
        return None if self.images is None else self.images.of(images)

    def of_id(self, images: np.ndarray) -> ImageWeights | None:
        """Weights of images of the ID split, shape (B, I)."""
        return None if self.id_images is None else self.id_images.of(images)

    def rows(self, image_id: np.ndarray) -> RowWeights | None:
        """Weights of rows with these images of the OOD split."""
        return None if self.images is None else self.images.rows(image_id)

    def id_rows(self, image_id: np.ndarray) -> RowWeights | None:
        """Weights of rows with these images of the ID split."""
        return None if self.id_images is None else self.id_images.rows(image_id)

    def spectrum_rows(self, image_id: np.ndarray) -> RowWeights | None:
        """Weights of rows with these images of the ID split or the shifted splits."""
        return None if self.spectrum is None else self.spectrum.rows(image_id)


#: Each image counts once.
ONCE = Weights()
