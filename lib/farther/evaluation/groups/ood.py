"""Separation of detections in OOD images from those in ID images."""

from __future__ import annotations

from farther.evaluation.case import ScoredSide, SplitCase
from farther.evaluation.groups.base import GroupTable, Separation


class DetectionSeparation(Separation):
    """All detections at or above t* but those of known objects in OOD images."""

    name = "ood"
    table = GroupTable("separation", "further metrics of the separation of detections (%)")
    columns = ("fpr95_ood_positive", "aupr_in", "aupr_out", "detection_error", "detection_error95")

    def sides(self, case: SplitCase) -> tuple[ScoredSide, ScoredSide]:
        """DetectionSeparation."""
        return case.method.of_id, case.of_ood
