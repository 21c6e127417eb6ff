"""Images with a detection that is taken for a known class.

This is the only metric of unknown objects that needs no boxes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from farther.evaluation.groups.base import GroupTable, MetricGroup
from farther.evaluation.scored_split import ScoredSplit
from farther.evaluation.weights import Weights
from farther.metrics.matching.boxes import places
from farther.metrics.open_set.drawn_thresholds import ImageCopies
from farther.metrics.weighting import once, plain, ratio


class ImagesAsKnown(MetricGroup):
    """Images of a split with a detection on no known object that is kept as a known class."""

    name = "images"
    table = GroupTable("images", "images with a detection classified as known (%)")
    columns = ("as_known",)
    unit = "images"
    sizes = ("images",)
    needs_id_images = False

    def images(self, scored: ScoredSplit) -> dict[str, int]:
        """All images of the split."""
        return {"as_known": len(scored.split.images)}

    def counts(self, scored: ScoredSplit) -> dict[str, Any]:
        """The number of images."""
        return {"images": len(scored.split.images)}

    def values(self, scored: ScoredSplit, weights: Weights) -> dict[str, Any]:
        """The share of images with such a detection."""
        images = np.array(sorted(scored.split.images), dtype=object)
        image_weights = weights.of(images)
        if image_weights is None:
            image_weights = once(len(images))

        # Of an image only its highest score counts.
        highest = np.full(len(images), -np.inf)
        unknown = scored.ood_detections
        np.maximum.at(highest, places(images, unknown.image_id), unknown.scores)
        copies = ImageCopies.of(np.arange(len(images)), highest, len(images), scored.taus(weights))
        is_as_known = (highest[copies.images.row] >= copies.tau).astype(np.int64)

        copy_weights = copies.weights(image_weights)
        share = ratio(copy_weights @ is_as_known, copy_weights @ np.ones_like(is_as_known))
        if weights.are_drawn:
            return {"as_known": share}
        return plain({"as_known": share})
