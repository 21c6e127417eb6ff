"""A test split whose images were made from those of another split: metrics of the pairs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from farther.errors import DataError
from farther.evaluation.files import RunSplit
from farther.evaluation.settings import EvaluationSettings
from farther.metrics.open_set import image_pairs
from farther.metrics.open_set.outcomes import MatchingRules, OpenSetSplit, Outcome
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
        names = _names(images, params["by"]), _names(base, params["by"])
        self._base_of = image_pairs.base_images(*names, name=params["name"])
        if not self._base_of:
            problem = f"no image of split {images.name!r} has a partner in split {base.name!r} by the pattern "
            raise DataError(
                f"{problem}{params['name']!r}: change 'name' of the split's 'pairs'",
                file=images.source,
            )
        paired = list(self._base_of)
        objects = images.objects[np.isin(images.objects.image_id, paired)]
        self._rows = np.isin(regions.image_id, paired)
        self._above = base.regions().score >= threshold
        copies, self._copied = image_pairs.of_partners(base.regions(threshold), self._base_of)
        settings = replace(matching, protocol="paper")
        self._with = OpenSetSplit.of(objects, regions[self._rows], settings)
        self._without = OpenSetSplit.of(objects, copies, settings)
        self._scene = np.array([self._base_of[image] for image in objects.image_id], dtype=object)
        self.counts = {
            "images": len(self._base_of),
            "without_partner": len(names[0]) - len(self._base_of),
            "scenes": len(set(self._base_of.values())),
        }

    def match(self, is_unknown: np.ndarray, base_is_unknown: np.ndarray) -> tuple[Outcome, Outcome]:
        """The outcomes of the images with unknown objects, and of those without them.

        Args:
            is_unknown: Regions of the images with unknown objects, at or above t*, that are
                flagged.
            base_is_unknown: The same of all stored regions of the images without them.
        """
        flagged = base_is_unknown[self._above][self._copied]
        return self._with.match(is_unknown[self._rows]), self._without.match(flagged)

    def weights(self, settings: EvaluationSettings, seed: int) -> ImageWeights | None:
        """Weights of the objects: scenes are drawn, each with all its images; None without replicates."""
        draws = settings.draws(self._base_of.values(), seed)
        return None if draws is None else draws.of(self._scene)


def _names(split: RunSplit, by: str) -> dict[str, str]:
    """Name by which each image of a split is compared."""
    return split.files if by == "file" else {image: image for image in split.images}
