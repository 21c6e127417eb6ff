"""Weights of the images that a method's metrics on a split are computed from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from farther.metrics.statistics.bootstrap import ImageDraws
from farther.metrics.weighting import ImageWeights, RowWeights


@dataclass(frozen=True)
class Weights:
    """Weight of each image: the number of times that it is drawn in each of B replicates, or 1.

    All methods return weights as formulas of `farther.metrics` take them: None where each image
    counts once.

    Args:
        id_images: Draws of the images of the ID split.
        images: Draws of the images of the OOD split.
        full_spectrum: Draws of the images of the ID split and the shifted splits.
        mixed: Weights of the images of `TestSplit.mixed`, shape (B, I).
        scenes: Weights of the objects of `TestSplit.pairs`: those of their scenes, shape (B, M).
    """

    id_images: ImageDraws | None = None
    images: ImageDraws | None = None
    full_spectrum: ImageDraws | None = None
    mixed: ImageWeights | None = None
    scenes: ImageWeights | None = None

    @property
    def are_drawn(self) -> bool:
        """Whether they are the weights of replicates."""
        return self.images is not None

    def of(self, images: np.ndarray) -> ImageWeights | None:
        """Weights of images of the OOD split, shape (B, I)."""
        if self.images is None:
            return None
        return self.images.of(images)

    def of_id(self, images: np.ndarray) -> ImageWeights | None:
        """Weights of images of the ID split, shape (B, I)."""
        if self.id_images is None:
            return None
        return self.id_images.of(images)

    def rows(self, image_id: np.ndarray) -> RowWeights | None:
        """Weights of rows with these images of the OOD split."""
        return _rows(self.images, image_id)

    def id_rows(self, image_id: np.ndarray) -> RowWeights | None:
        """Weights of rows with these images of the ID split."""
        return _rows(self.id_images, image_id)

    def full_spectrum_rows(self, image_id: np.ndarray) -> RowWeights | None:
        """Weights of rows with these images of the ID split or the shifted splits."""
        return _rows(self.full_spectrum, image_id)


#: Each image counts once.
ONCE = Weights()


def _rows(draws: ImageDraws | None, image_id: np.ndarray) -> RowWeights | None:
    if draws is None:
        return None
    return draws.rows(image_id)
