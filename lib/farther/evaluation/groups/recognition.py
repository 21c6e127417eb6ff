"""Open-set recognition by a classifier."""

from __future__ import annotations

from typing import Any

from farther.evaluation.case import SplitCase
from farther.evaluation.groups.base import GroupTable, MetricGroup
from farther.evaluation.weights import Weights
from farther.metrics import ood
from farther.metrics.ood import classification
from farther.metrics.weighting import value


class Recognition(MetricGroup):
    """OSCR, and AUROC as a mean over unknown classes; see `farther.metrics.ood.classification`."""

    name = "recognition"
    table = GroupTable("recognition", "open-set recognition by a classifier (%)")
    columns = ("oscr", "macro_auroc")
    sizes = ("id_regions", "ood_regions")
    sizes_in = "ood"
    needs = "it is a metric of image classifiers"

    def applies(self, case: SplitCase) -> bool:
        """For classifiers, whose regions are whole images."""
        return case.inputs.whole_images

    def values(self, case: SplitCase, weights: Weights) -> dict[str, Any]:
        """See `farther.metrics.ood.classification.oscr` and `macro_auroc`."""
        classified, of_id, of_ood = case.inputs.classified, case.method.of_id, case.of_ood
        right, category = of_id[case.inputs.is_correct], case.split.categories[case.split.is_ood]
        rows = weights.rows(of_ood.image_id)
        at_right = ood.auroc(right.scores, of_ood.scores, weights.id_rows(right.image_id), rows)
        accuracy = classification.metrics(classified, weights.of_id(classified.images))["accuracy"]
        id_rows = weights.id_rows(of_id.image_id)
        return {
            "oscr": classification.oscr(
                accuracy if weights.are_drawn else value(accuracy[0]), at_right
            ),
            "macro_auroc": classification.macro_auroc(
                of_id.scores, of_ood.scores, category, id_rows, rows
            ),
        }
