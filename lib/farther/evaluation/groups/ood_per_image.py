"""Separation of whole images."""

from __future__ import annotations

from farther.evaluation.groups.base import GroupTable, Separation
from farther.evaluation.scored_split import ScoredSide, ScoredSplit


class ImageSeparation(Separation):
    """Images with detections, each with the score of its least in-distribution one."""

    name = "ood_per_image"
    table = GroupTable(
        "per-image",
        "separation of whole images, each with the score of its least in-distribution "
        "detection (%)",
    )
    columns = ("auroc", "fpr95", "aupr_in", "aupr_out", "detection_error", "detection_error95")
    unit = "images"
    sizes = ("id_images", "ood_images")

    def sides(self, scored: ScoredSplit) -> tuple[ScoredSide, ScoredSide]:
        """ID images, and images with OOD detections."""
        return scored.method.images, scored.ood_images
