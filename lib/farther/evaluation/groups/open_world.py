"""Open-world detection: ID images mixed with those of a split, at all confidences."""

from __future__ import annotations

from typing import Any

import numpy as np

from farther.evaluation.case import SplitCase
from farther.evaluation.groups.base import GroupTable, MetricGroup
from farther.evaluation.weights import Weights


class OpenWorld(MetricGroup):
    """See `farther.metrics.open_set.open_world`."""

    name = "open_world"
    table = GroupTable(
        "open-world",
        "open-world metrics in ID test images mixed with those of a split, 100 detections per image (%)",
    )
    columns = ("u_recall", "a_ose", "wi", "ap_k_before", "ap_k")
    unit = "objects"
    sizes = ("unknown_objects",)

    def applies(self, case: SplitCase) -> bool:
        """For detectors of objects."""
        return not case.inputs.whole_images

    def values(self, case: SplitCase, weights: Weights) -> dict[str, Any]:
        """See `MixedImages.metrics`; all are undefined where no image of the split has boxes."""
        found = case.split.mixed.metrics(case.mixed_outcome, weights.mixed)
        if not case.split.has_boxes:
            none = np.full_like(found["u_recall"], np.nan) if weights.are_drawn else None
            found |= {name: none for name in self.columns if name in found}
        return found
