"""Separation of the detections on unknown objects, on no object, and of the right class.

The setting `separation` names the groups that are evaluated.
"""

from __future__ import annotations

from farther.evaluation.groups.base import GroupTable, Separation
from farther.evaluation.scored_split import ScoredSide, ScoredSplit


class ChosenSides(Separation):
    """A group that applies where the setting `separation` names it."""

    table = GroupTable(
        "sides",
        "separation from the detections on labelled unknown objects (GTU) and on no object (UU), "
        "and of the ID detections of the right class (%)",
    )
    columns = ("auroc", "fpr95", "aupr_out")

    def applies(self, scored: ScoredSplit) -> bool:
        """Whether the setting `separation` names the group."""
        return self.name in scored.settings.separation


class OnUnknown(ChosenSides):
    """Detections in OOD images that lie on a labelled unknown object."""

    name = "gtu"

    def sides(self, scored: ScoredSplit) -> tuple[ScoredSide, ScoredSide]:
        """Detections in ID images, and detections on unknown objects."""
        return scored.method.detections, scored.detections[scored.split.on_unknown]


class OnNothing(ChosenSides):
    """Detections in OOD images that lie on no labelled object."""

    name = "uu"

    def sides(self, scored: ScoredSplit) -> tuple[ScoredSide, ScoredSide]:
        """Detections in ID images, and detections on no object."""
        return scored.method.detections, scored.detections[scored.split.on_nothing]


class CorrectId(ChosenSides):
    """Detections in ID images of the right class."""

    name = "correct_id"

    def sides(self, scored: ScoredSplit) -> tuple[ScoredSide, ScoredSide]:
        """Correct detections in ID images, and OOD detections."""
        correct = scored.method.detections[scored.inputs.is_correct]
        return correct, scored.ood_detections
