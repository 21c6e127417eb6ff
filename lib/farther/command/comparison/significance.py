"""Whether changes are more than chance: a paired bootstrap where regions and scores are at hand, else intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from farther.command.comparison.changes import Change
from farther.command.comparison.sides import Place, Side
from farther.errors import DataError, FartherError

#: Replicates where the evaluation had none.
REPLICATES = 200

#: Why some figures have no test.
WITHOUT_METHOD = "Figures of a detector alone (map, no_detection and the like) are not tested."
SINGLE = "Files of metrics alone are not tested: name folders that have the regions and scores beside them."


def tested_changes(rows: Sequence[Change], before: Side, after: Side) -> tuple[list[Change], list[str]]:
    """The rows with their p, or with what intervals alone say; and notes on what could not be tested.

    Figures that are equal need no test. A figure is tested where both sides have the regions and scores of the same
    images.
    """
    notes: dict[str, None] = {}
    sides = (_Tested(before), _Tested(after))
    found: list[Change] = []
    for row in rows:
        if not row.change:
            found.append(row)
            continue
        if not row.place.method:
            notes[WITHOUT_METHOD if row.place.run else SINGLE] = None
            found.append(row)
            continue
        try:
            tested = _compare(sides, row.place)
            found.append(replace(row, **tested[row.metric]) if row.metric in tested else row)
        except FartherError as error:
            notes[f"{row.place.run}: not tested: {error}"] = None
            found.append(replace(row, apart=_apart(sides, row)))
    return found, list(notes)


def compared_methods(
    root: Path, run: str, methods: tuple[str, str], splits: Sequence[str], metrics: Sequence[str]
) -> list[Change]:
    """How the second method differs from the first, on the same images.

    Args:
        root: The artifacts folder.
        run: A run that was evaluated with both.
        methods: Names of the two.
        splits, metrics: Which to compare; all where empty.

    Raises:
        ParameterError: a name is unknown.
        DataError: the run was not evaluated, or a file is damaged.
    """
    from farther.command.project import choose
    from farther.evaluation.intervals import COMPARED
    from farther.evaluation.paired import compare

    report = _evaluation(root, run)
    drawn = _drawn(root, report)
    known = report["methods"]
    first, second = (known[choose("method of this run", name, known)]["splits"] for name in methods)
    rows = []
    for split in [choose("split of this run", name, first) for name in splits] or list(first):
        tested = compare(*(drawn.replicates(name, split) for name in methods))
        for metric in [choose("metric", name, tested) for name in metrics] or COMPARED:
            before, after = (_flat(one[split]).get(metric) for one in (first, second))
            rows.append(Change(Place(run, split, ""), metric, before, after, **tested[metric]))
    return rows


class _Tested:
    """A side, with what a test needs of it, read once."""

    def __init__(self, side: Side):
        self.side = side
        self._runs: dict[str, Any] = {}
        self._replicates: dict[Place, Any] = {}

    def replicates(self, place: Place) -> Any:
        """Replicates of a method's figures in a split.

        Raises:
            DataError: something is not at hand, or damaged.
        """
        if place not in self._replicates:
            if place.run not in self._runs:
                root = self.side.artifacts(place.run)
                self._runs[place.run] = _drawn(root, _evaluation(root, place.run))
            self._replicates[place] = self._runs[place.run].replicates(place.method, place.split)
        return self._replicates[place]

    def interval(self, row: Change) -> tuple[float, float] | None:
        """A figure's own interval, where an evaluation is at hand."""
        try:
            report = _evaluation(self.side.artifacts(row.place.run), row.place.run)
            return report["methods"][row.place.method]["splits"][row.place.split]["intervals"][row.metric]
        except (FartherError, KeyError):
            return None


def _compare(sides: tuple[_Tested, _Tested], place: Place) -> dict[str, dict[str, Any]]:
    from farther.evaluation.paired import compare

    return compare(*(side.replicates(place) for side in sides))


def _apart(sides: tuple[_Tested, _Tested], row: Change) -> bool | None:
    """Whether the two sides' own intervals have nothing in common; None where one has none."""
    first, second = (side.interval(row) for side in sides)
    if first is None or second is None:
        return None
    return first[1] < second[0] or second[1] < first[0]


def _evaluation(root: Path, run: str) -> dict[str, Any]:
    from farther.tables.files import inside, read_json

    file = inside(root / "evaluation", f"{run}.json")
    report = read_json(file)
    if not isinstance(report, dict) or not {"benchmark", "settings", "methods"} <= set(report):
        raise DataError("not what the stage `evaluate` writes; run it again", file=file)
    return report


def _drawn(root: Path, report: dict[str, Any]) -> Any:
    from farther.evaluation.evaluate import EvaluationSettings
    from farther.evaluation.files import RunFiles
    from farther.evaluation.paired import Drawn
    from farther.registry import build

    settings = build(EvaluationSettings, f"settings of {report['run']}", report["settings"])
    settings = replace(settings, replicates=settings.replicates or REPLICATES)
    return Drawn(RunFiles(report["run"], report["benchmark"], root), settings)


def _flat(figures: dict[str, Any]) -> dict[str, float | None]:
    return {**figures["ood"], **figures["open_set"]}
