"""Separation where shifted ID images count as in-distribution (Yang et al., 2023, arXiv:2306.09301)."""

from __future__ import annotations

from collections.abc import Sequence

from farther.evaluation.case import ScoredSide, SplitCase
from farther.evaluation.files import Roles
from farther.evaluation.groups.base import GroupTable, Separation
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

    def applies(self, case: SplitCase) -> bool:
        """Where the benchmark has shifted splits."""
        return bool(case.inputs.shifted)

    def sides(self, case: SplitCase) -> tuple[ScoredSide, ScoredSide]:
        """Detections."""
        return case.method.of_spectrum, case.of_ood

    def id_rows(self, side: ScoredSide, weights: Weights) -> RowWeights | None:
        """A shifted image is drawn together with the one that it was made from."""
        return weights.spectrum_rows(side.image_id)

    def read_splits(self, roles: Roles, split: str) -> Sequence[str]:
        """The shifted splits."""
        return tuple(roles.shifted)
