"""How metrics differ between two commits or folders, or between two methods, and whether by more than chance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from farther.command.stored_metrics import StoredMetrics, Subject, Values
from farther.errors import FartherError, ParameterError, choose

#: p below which a change counts as more than chance.
LEVEL = 0.05

#: Why some metrics have no test.
WITHOUT_METHOD = "Metrics of a detector alone (map, no_detection and the like) are not tested."
SINGLE = (
    "Single files of metrics are not tested: name folders that have the evaluation beside them."
)


@dataclass(frozen=True)
class Change:
    """One metric on both sides.

    Args:
        subject: What it was measured on.
        metric: Its name.
        before, after: Its values; None where a side has none.
        interval: 95% interval of after − before on the same draws of images, where that was tested.
        p: Probability of a change this large by chance alone, where that was tested.
        apart: Whether the sides' own intervals do not overlap, where only these are available.
    """

    subject: Subject
    metric: str
    before: float | None
    after: float | None
    interval: tuple[float, float] | None = None
    p: float | None = None
    apart: bool | None = None

    @property
    def names(self) -> dict[str, str]:
        """Run, split, method and metric."""
        return {**self.subject._asdict(), "metric": self.metric}

    @property
    def change(self) -> float | None:
        """after − before."""
        return None if self.before is None or self.after is None else self.after - self.before

    @property
    def result(self) -> str:
        """better, worse or different, if by more than chance.

        "apart" for intervals without a test; else "".
        """
        from farther.metrics.catalogue import METRICS

        if self.p is None:
            return "apart" if self.apart else ""
        if self.p >= LEVEL or not self.change:
            return ""
        higher = METRICS[self.metric].higher_is_better if self.metric in METRICS else None
        if higher is None:
            return "different"
        return "better" if (self.change > 0) == higher else "worse"


def changes(
    before: Values, after: Values, wanted: Mapping[str, Sequence[str] | None]
) -> list[Change]:
    """Each metric of the wanted names that either side has, in the order of the names.

    Args:
        before: Metrics of one side.
        after: Metrics of the other one.
        wanted: Names of each kind (run, split, method, metric); None for all.

    Raises:
        ParameterError: no metric has all of these; names the first unknown one.
    """
    rows = []
    for subject in sorted({*before, *after}):
        ours = before.get(subject, {})
        theirs = after.get(subject, {})
        rows += [
            Change(subject, name, ours.get(name), theirs.get(name))
            for name in dict.fromkeys([*ours, *theirs])
        ]
    chosen = [
        row
        for row in rows
        if all(not names or row.names[kind] in names for kind, names in wanted.items())
    ]
    if not chosen:
        for kind, names in wanted.items():
            for name in names or ():
                choose(kind, name, {row.names[kind] for row in rows} - {""})
        raise ParameterError(
            "no metric matches all of these: omit --run, --split, --method or --metric"
        )
    return chosen


def tested_changes(
    rows: Sequence[Change], before: StoredMetrics, after: StoredMetrics
) -> tuple[list[Change], list[str]]:
    """The rows with their p, or with what their own intervals show.

    And notes on what could not be tested.

    A metric is tested where its value changed and both sides have replicates of the same draws of
    images.
    """
    from farther.evaluation.paired import compare

    notes: dict[str, None] = {}
    tested: dict[Subject, dict[str, dict[str, Any]] | None] = {}
    found: list[Change] = []
    for row in rows:
        if row.change and not row.subject.method:
            notes[WITHOUT_METHOD if row.subject.run else SINGLE] = None
        elif row.change:
            if row.subject not in tested:
                try:
                    tested[row.subject] = compare(
                        before.replicates(row.subject), after.replicates(row.subject)
                    )
                except FartherError as error:
                    notes[f"{row.subject.run}: not tested: {error}"] = None
                    tested[row.subject] = None
            results = tested[row.subject]
            if results is None:
                first, second = (side.interval(row.subject, row.metric) for side in (before, after))
                row = replace(
                    row,
                    apart=bool(first and second and (first[1] < second[0] or second[1] < first[0])),
                )
            else:
                row = _with_test(row, results)
        found.append(row)
    return found, list(notes)


def compared_methods(
    root: Path, run: str, methods: tuple[str, str], splits: Sequence[str], metrics: Sequence[str]
) -> list[Change]:
    """How the second method differs from the first, on the same images."""
    from farther.evaluation.paired import StoredEvaluation, compare
    from farther.metrics.catalogue import COMPARED, METRICS

    evaluation = StoredEvaluation(root, run)
    known = evaluation.report.methods
    first, second = (known[choose("method of this run", name, known)].splits for name in methods)
    rows = []
    for split in [choose("split of this run", name, first) for name in splits] or list(first):
        tested = compare(*(evaluation.replicates(name, split) for name in methods))
        for metric in [choose("metric", name, tested) for name in metrics] or COMPARED:
            before, after = (one[split].value(METRICS[metric]) for one in (first, second))
            rows.append(_with_test(Change(Subject(run, split, ""), metric, before, after), tested))
    return rows


def _with_test(row: Change, tested: Mapping[str, Mapping[str, Any]]) -> Change:
    found = tested.get(row.metric)
    return row if found is None else replace(row, interval=found["interval"], p=found["p"])
