"""Images in which something is taken for a known class: the one metric of objects that needs no boxes."""

from __future__ import annotations

from typing import Any

import numpy as np

from farther.evaluation.case import SplitCase
from farther.evaluation.groups.base import GroupTable, MetricGroup
from farther.evaluation.weights import Weights
from farther.metrics.matching.boxes import is_among
from farther.metrics.weighting import once, plain, ratio


class ImagesAsKnown(MetricGroup):
    """Images of a split with a detection that lies on no known object and is kept as a known class."""

    name = "images"
    table = GroupTable("images", "images with a detection classified as known (%)")
    columns = ("as_known",)
    unit = "images"
    sizes = ("images",)

    def counts(self, case: SplitCase) -> dict[str, Any]:
        """The number of images."""
        return {"images": len(case.split.images)}

    def values(self, case: SplitCase, weights: Weights) -> dict[str, Any]:
        """The share of images with such a detection."""
        images = np.array(sorted(case.split.images), dtype=object)
        drawn = weights.of(images)
        of_images = once(len(images)) if drawn is None else drawn
        kept = case.regions.image_id[case.split.is_ood & ~case.is_unknown]
        shown = is_among(images, set(kept)).astype(np.int64)
        found = {"as_known": ratio(of_images @ shown, of_images @ np.ones_like(shown))}
        return found if weights.are_drawn else plain(found)
