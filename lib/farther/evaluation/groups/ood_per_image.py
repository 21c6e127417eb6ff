"""Separation of whole images."""

from __future__ import annotations

from farther.evaluation.case import ScoredSide, SplitCase
from farther.evaluation.groups.base import GroupTable, Separation


class ImageSeparation(Separation):
    """Images with detections, each with the score of its least in-distribution one."""

    name = "ood_per_image"
    table = GroupTable(
        "per-image",
        "separation of whole images, each with the score of its least in-distribution detection (%)",
    )
    columns = ("auroc", "fpr95", "aupr_in", "aupr_out", "detection_error", "detection_error95")
    unit = "images"
    sizes = ("id_images", "ood_images")

    def sides(self, case: SplitCase) -> tuple[ScoredSide, ScoredSide]:
        """Images."""
        return case.method.of_id_images, case.of_ood_images
