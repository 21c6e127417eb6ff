"""Open-world detection: ID images mixed with those of a split, at all confidences."""

from __future__ import annotations

from typing import Any

import numpy as np

from farther.evaluation.groups.base import GroupTable, MetricGroup
from farther.evaluation.scored_split import ScoredSplit
from farther.evaluation.weights import Weights
from farther.metrics import open_set


class OpenWorld(MetricGroup):
    """Open-world metrics; see `farther.metrics.open_set.open_world`."""

    name = "open_world"
    table = GroupTable(
        "open-world",
        "open-world metrics in ID test images mixed with those of a split, "
        "100 detections per image (%)",
    )
    columns = ("u_recall", "a_ose", "wi", "ap_k_before", "ap_k")
    unit = "objects"
    sizes = ("unknown_objects",)

    def applies(self, scored: ScoredSplit) -> bool:
        """Whether the detector is one of objects, not a classifier."""
        return not scored.inputs.whole_images

    def images(self, scored: ScoredSplit) -> dict[str, int]:
        """The images with unknown objects."""
        return {"u_recall": open_set.images_of_shares(scored.outcome)["r_u"]}

    def values(self, scored: ScoredSplit, weights: Weights) -> dict[str, Any]:
        """See `MixedImages.metrics`; all are undefined where no image of the split has boxes."""
        mixed = scored.split.mixed
        if weights.are_drawn:
            flagged = scored.mixed_on_unknown(weights)
            metrics = mixed.metrics(flagged.outcome, flagged.weights(weights.mixed))
        else:
            metrics = mixed.metrics(scored.mixed_outcome)
        if scored.split.has_boxes:
            return metrics

        undefined = None
        if weights.are_drawn:
            undefined = np.full_like(metrics["u_recall"], np.nan)
        for name in self.columns:
            if name in metrics:
                metrics[name] = undefined
        return metrics
