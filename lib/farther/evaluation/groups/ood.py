"""Separation of detections in OOD images from those in ID images."""

from __future__ import annotations

from farther.evaluation.case import Side, SplitCase
from farther.evaluation.groups.base import Separation, Table


class Detections(Separation):
    """All detections at or above t* but those of known objects in OOD images."""

    name = "ood"
    table = Table("separation", "further metrics of the separation of detections (%)")
    columns = ("fpr95_ood_positive", "aupr_in", "aupr_out", "detection_error")

    def sides(self, case: SplitCase) -> tuple[Side, Side]:
        """Detections."""
        return case.method.of_id, case.of_ood
