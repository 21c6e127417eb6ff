"""Separation of detections in OOD images from those in ID images."""

from __future__ import annotations

from farther.evaluation.groups.base import GroupTable, Separation
from farther.evaluation.scored_split import ScoredSide, ScoredSplit


class DetectionSeparation(Separation):
    """All detections at or above t* but those of known objects in OOD images."""

    name = "ood"
    table = GroupTable("separation", "further metrics of the separation of detections (%)")
    columns = ("fpr95_ood_positive", "aupr_in", "aupr_out", "detection_error", "detection_error95")

    def sides(self, scored: ScoredSplit) -> tuple[ScoredSide, ScoredSide]:
        """Detections in ID images, and OOD detections."""
        return scored.method.detections, scored.ood_detections
