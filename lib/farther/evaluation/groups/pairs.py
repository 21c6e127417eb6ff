"""Images with unknown objects against the images that they were made from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from farther.evaluation.case import SplitCase
from farther.evaluation.files import Roles
from farther.evaluation.groups.base import GroupTable, MetricGroup
from farther.evaluation.weights import Weights
from farther.metrics.open_set import image_pairs


class ImagePairChanges(MetricGroup):
    """Differences between the images of a pair; see `farther.metrics.open_set.image_pairs`."""

    name = "pairs"
    table = GroupTable(
        "pairs",
        "images with unknown objects against the same images without them: difference (percentage points)",
    )
    columns = ("found", "misclassified", "known")
    unit = "images"
    sizes = ("images",)
    needs = "the split's images were not made from those of another split"

    def applies(self, case: SplitCase) -> bool:
        """Where the images were made from those of another split."""
        return case.split.pairs is not None

    def counts(self, case: SplitCase) -> dict[str, Any]:
        """Numbers of images with and without a partner, and of scenes."""
        return case.split.pairs.counts if case.split.pairs else {}

    def values(self, case: SplitCase, weights: Weights) -> dict[str, Any]:
        """See `farther.metrics.open_set.image_pairs.metrics`."""
        return (
            image_pairs.metrics(*case.pair_outcomes, weights=weights.scenes)
            if case.pair_outcomes
            else {}
        )

    def read_splits(self, roles: Roles, split: str) -> Sequence[str]:
        """The split of the images without unknown objects."""
        return (roles.pairs[split]["of"],)
