"""Open-set recognition by a classifier."""

from __future__ import annotations

from typing import Any

from farther.evaluation.groups.base import GroupTable, MetricGroup
from farther.evaluation.scored_split import ScoredSplit
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

    def applies(self, scored: ScoredSplit) -> bool:
        """Whether the detector is a classifier, whose regions are whole images."""
        return scored.inputs.whole_images

    def values(self, scored: ScoredSplit, weights: Weights) -> dict[str, Any]:
        """See `farther.metrics.ood.classification.oscr` and `macro_auroc`."""
        return {
            "oscr": self._oscr(scored, weights),
            "macro_auroc": self._macro_auroc(scored, weights),
        }

    def _oscr(self, scored: ScoredSplit, weights: Weights) -> Any:
        classified = scored.inputs.classified
        metrics = classification.metrics(classified, weights.of_id(classified.images))
        accuracy = metrics["accuracy"]
        if not weights.are_drawn:
            accuracy = value(accuracy[0])

        correct = scored.method.detections[scored.inputs.is_correct]
        unknown = scored.ood_detections
        auroc_of_correct = ood.auroc(
            correct.scores,
            unknown.scores,
            weights.id_rows(correct.image_id),
            weights.rows(unknown.image_id),
        )
        return classification.oscr(accuracy, auroc_of_correct)

    def _macro_auroc(self, scored: ScoredSplit, weights: Weights) -> Any:
        known = scored.method.detections
        unknown = scored.ood_detections
        return classification.macro_auroc(
            known.scores,
            unknown.scores,
            scored.split.categories[scored.split.is_ood],
            weights.id_rows(known.image_id),
            weights.rows(unknown.image_id),
        )
