"""Separation where shifted ID images count as in-distribution.

Yang et al., 2023, arXiv:2306.09301.
"""

from __future__ import annotations

from collections.abc import Sequence

from farther.evaluation.files import Roles
from farther.evaluation.groups.base import GroupTable, Separation
from farther.evaluation.scored_split import ScoredSide, ScoredSplit
from farther.evaluation.weights import Weights
from farther.metrics.weighting import RowWeights


class FullSpectrum(Separation):
    """Detections; those in the ID split and in the shifted splits are in-distribution."""

    name = "full_spectrum"
    table = GroupTable(
        "full-spectrum", "separation where shifted ID images count as in-distribution (%)"
    )
    columns = ("auroc", "fpr95", "aupr_in", "aupr_out", "detection_error", "detection_error95")
    needs = "a benchmark with shifted splits is needed"

    def applies(self, scored: ScoredSplit) -> bool:
        """Whether the benchmark has shifted splits."""
        return bool(scored.inputs.shifted)

    def sides(self, scored: ScoredSplit) -> tuple[ScoredSide, ScoredSide]:
        """Detections in ID and shifted images, and OOD detections."""
        return scored.method.full_spectrum, scored.ood_detections

    def id_rows(self, side: ScoredSide, weights: Weights) -> RowWeights | None:
        """Weights of the ID side: a shifted image is drawn together with its original."""
        return weights.full_spectrum_rows(side.image_id)

    def read_splits(self, roles: Roles, split: str) -> Sequence[str]:
        """The shifted splits."""
        return tuple(roles.shifted)
