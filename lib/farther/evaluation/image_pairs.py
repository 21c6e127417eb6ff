"""A test split whose images were made from those of another split: metrics of the pairs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from farther.errors import DataError
from farther.evaluation.files import RunSplit
from farther.evaluation.settings import EvaluationSettings
from farther.metrics.open_set import image_pairs
from farther.metrics.open_set.drawn_thresholds import FlaggedSplit
from farther.metrics.open_set.outcomes import MatchingRules, OpenSetSplit
from farther.metrics.weighting import ImageWeights
from farther.tables import Regions


class PairedSplit:
    """Images with unknown objects and the images without them, at the operating threshold.

    Args:
        images: The split of images with unknown objects.
        regions: Its regions at or above t*.
        base: The split of the images that they were made from.
        params: The split's parameter `pairs`; see `farther.curation.parameters.ImagePairs`.
        threshold: t*.
        matching: Rules by which regions are matched to objects.

    Attributes:
        base: The split of the images without unknown objects.
        counts: Numbers of images with a partner, of images without one, and of scenes.

    Raises:
        DataError: no image has a partner, or the pattern confuses two images of `base`.
    """

    def __init__(
        self,
        images: RunSplit,
        regions: Regions,
        base: RunSplit,
        params: Mapping[str, str],
        *,
        threshold: float,
        matching: MatchingRules,
    ):
        self.base = base
        names = _names(images, params["by"])
        base_names = _names(base, params["by"])
        self._base_of = image_pairs.base_images(names, base_names, name=params["name"])
        if not self._base_of:
            problem = (
                f"no image of split {images.name!r} has a partner in split {base.name!r} "
                f"by the pattern {params['name']!r}: change 'name' of the split's 'pairs'"
            )
            raise DataError(problem, file=images.source)

        paired_images = list(self._base_of)
        objects = images.objects[np.isin(images.objects.image_id, paired_images)]
        self._scene_of_object = np.array(
            [self._base_of[image] for image in objects.image_id], dtype=object
        )

        self._is_paired = np.isin(regions.image_id, paired_images)
        self._base_above_threshold = base.regions().score >= threshold
        base_regions = base.regions(threshold)
        copies, self._copied_row = image_pairs.partner_regions(base_regions, self._base_of)

        rules = replace(matching, protocol="paper")
        self._with_objects = OpenSetSplit.of(objects, regions[self._is_paired], rules)
        self._without_objects = OpenSetSplit.of(objects, copies, rules)
        self.counts = {
            "images": len(self._base_of),
            "without_partner": len(names) - len(self._base_of),
            "scenes": len(set(self._base_of.values())),
        }

    def match(
        self, scores: np.ndarray, base_scores: np.ndarray, taus: np.ndarray
    ) -> tuple[FlaggedSplit, FlaggedSplit]:
        """The outcomes of the images with unknown objects, and of those without them.

        Args:
            scores: Of the regions of the images with unknown objects, at or above t*.
            base_scores: Of all stored regions of the images without them.
            taus: τ in each replicate, ndarray of shape (B,), or the same in all, of shape (1,).
        """
        with_objects = FlaggedSplit.of(self._with_objects, scores[self._is_paired], taus)
        copied_scores = base_scores[self._base_above_threshold][self._copied_row]
        without_objects = FlaggedSplit.of(self._without_objects, copied_scores, taus)
        return with_objects, without_objects

    def weights(self, settings: EvaluationSettings, seed: int) -> ImageWeights | None:
        """Weights of the objects, from draws of scenes with all their images.

        Returns:
            Shape (B, M) for M objects; None without replicates.
        """
        draws = settings.draws(self._base_of.values(), seed)
        if draws is None:
            return None
        return draws.of(self._scene_of_object)


def _names(split: RunSplit, by: str) -> dict[str, str]:
    """Name by which each image of a split is compared."""
    if by == "file":
        return split.files
    return {image: image for image in split.images}
