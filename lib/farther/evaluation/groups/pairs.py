"""Images with unknown objects against the images that they were made from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from farther.evaluation.files import Roles
from farther.evaluation.groups.base import GroupTable, MetricGroup
from farther.evaluation.scored_split import ScoredSplit
from farther.evaluation.weights import Weights
from farther.metrics.open_set import image_pairs


class ImagePairChanges(MetricGroup):
    """Differences between the images of a pair; see `farther.metrics.open_set.image_pairs`."""

    name = "pairs"
    table = GroupTable(
        "pairs",
        "images with unknown objects against the same images without them: difference "
        "(percentage points)",
    )
    columns = ("found", "misclassified", "known")
    unit = "images"
    sizes = ("images",)
    needs = "the split's images were not made from those of another split"

    def applies(self, scored: ScoredSplit) -> bool:
        """Whether the images were made from those of another split."""
        return scored.split.pairs is not None

    def counts(self, scored: ScoredSplit) -> dict[str, Any]:
        """Numbers of images with and without a partner, and of scenes."""
        if scored.split.pairs is None:
            return {}
        return scored.split.pairs.counts

    def values(self, scored: ScoredSplit, weights: Weights) -> dict[str, Any]:
        """See `farther.metrics.open_set.image_pairs.metrics`."""
        outcomes = scored.pair_outcomes(weights)
        if outcomes is None:
            return {}
        with_objects, without_objects = outcomes
        return image_pairs.metrics(
            with_objects.outcome,
            without_objects.outcome,
            with_objects.object_weights(weights.scenes),
            without_objects.object_weights(weights.scenes),
        )

    def read_splits(self, roles: Roles, split: str) -> Sequence[str]:
        """The split of the images without unknown objects."""
        return (roles.pairs[split]["of"],)
