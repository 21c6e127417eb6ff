"""Separation of some of the detections, by what they lie on: the entries of the setting `separation`."""

from __future__ import annotations

from farther.evaluation.case import ScoredSide, SplitCase
from farther.evaluation.groups.base import GroupTable, Separation


class ChosenSides(Separation):
    """A group that applies where the setting `separation` names it."""

    table = GroupTable(
        "sides",
        "separation from the detections on labelled unknown objects (GTU) and on no object (UU), and of the ID "
        "detections of the right class (%)",
    )
    columns = ("auroc", "fpr95", "aupr_out")

    def applies(self, case: SplitCase) -> bool:
        """Where it is asked for."""
        return self.name in case.settings.separation


class OnUnknown(ChosenSides):
    """Detections in OOD images that lie on a labelled unknown object."""

    name = "gtu"

    def sides(self, case: SplitCase) -> tuple[ScoredSide, ScoredSide]:
        """Detections."""
        return case.method.of_id, case.regions[case.split.on_unknown]


class OnNothing(ChosenSides):
    """Detections in OOD images that lie on no labelled object."""

    name = "uu"

    def sides(self, case: SplitCase) -> tuple[ScoredSide, ScoredSide]:
        """Detections."""
        return case.method.of_id, case.regions[case.split.on_nothing]


class CorrectId(ChosenSides):
    """Detections in ID images of the right class."""

    name = "correct_id"

    def sides(self, case: SplitCase) -> tuple[ScoredSide, ScoredSide]:
        """Detections."""
        return case.method.of_id[case.inputs.is_correct], case.of_ood
