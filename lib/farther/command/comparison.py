"""How metrics differ between two commits, folders or methods, and whether by more than chance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from farther.command.stored_metrics import Interval, StoredMetrics, Subject, Values
from farther.errors import FartherError, ParameterError, choose

#: p below which a change counts as more than chance.
LEVEL = 0.05

#: Why some metrics have no test.
WITHOUT_METHOD = "Metrics of a detector alone (map, no_detection and the like) are not tested."
SINGLE = (
    "Single files of metrics are not tested: name folders that have the evaluation beside them."
)

#: {metric: its interval and p}, as `farther.evaluation.paired.compare` returns them.
TestResults = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Selection:
    """Names that metrics are restricted to; None for all.

    Args:
        run, split, method, metric: Names of each kind.
    """

    run: Sequence[str] | None = None
    split: Sequence[str] | None = None
    method: Sequence[str] | None = None
    metric: Sequence[str] | None = None

    def includes(self, row: Change) -> bool:
        """Whether a metric has one of the names of each kind."""
        return all(
            not names or row.names[kind] in names for kind, names in self.names_by_kind().items()
        )

    def names_by_kind(self) -> dict[str, Sequence[str] | None]:
        """{kind: names}."""
        return {
            "run": self.run,
            "split": self.split,
            "method": self.method,
            "metric": self.metric,
        }


@dataclass(frozen=True)
class Change:
    """One metric on both sides.

    Args:
        subject: The run, split and method that it is about.
        metric: Its name.
        before, after: Its values; None where a side has none.
        interval: 95% interval of after − before on the same bootstrap resamples, where tested.
        p: Probability of a change this large by chance alone, where tested.
        apart: Whether the sides' own intervals do not overlap, where only these are available.
    """

    subject: Subject
    metric: str
    before: float | None
    after: float | None
    interval: Interval | None = None
    p: float | None = None
    apart: bool | None = None

    @property
    def names(self) -> dict[str, str]:
        """Run, split, method and metric."""
        return {**self.subject._asdict(), "metric": self.metric}

    @property
    def change(self) -> float | None:
        """after − before."""
        if self.before is None or self.after is None:
            return None
        return self.after - self.before

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
        metric = METRICS.get(self.metric)
        if metric is None or metric.higher_is_better is None:
            return "different"
        is_higher = self.change > 0
        return "better" if is_higher == metric.higher_is_better else "worse"


def changes(before: Values, after: Values, selection: Selection | None = None) -> list[Change]:
    """Each metric of a selection that either side has, in the order of the names.

    Args:
        before, after: Metrics of each side.
        selection: Names that the metrics are restricted to.

    Raises:
        ParameterError: no metric has all of these; names the first unknown one.
    """
    selection = selection or Selection()
    rows = []
    for subject in sorted({*before, *after}):
        values_before = before.get(subject, {})
        values_after = after.get(subject, {})
        for metric in dict.fromkeys([*values_before, *values_after]):
            row = Change(subject, metric, values_before.get(metric), values_after.get(metric))
            rows.append(row)
    selected = [row for row in rows if selection.includes(row)]
    if not selected:
        _check_names(rows, selection)
        raise ParameterError(
            "no metric matches all of these: omit --run, --split, --method or --metric"
        )
    return selected


def _check_names(rows: Sequence[Change], selection: Selection) -> None:
    """Raises a ParameterError about the first name that no metric has."""
    for kind, names in selection.names_by_kind().items():
        known = {row.names[kind] for row in rows} - {""}
        for name in names or ():
            choose(kind, name, known)


def tested_changes(
    rows: Sequence[Change], before: StoredMetrics, after: StoredMetrics
) -> tuple[list[Change], list[str]]:
    """Tests the changes of metrics between two sides.

    A metric is tested where its value changed and both sides have replicates of the same bootstrap
    resamples of images.

    Args:
        rows: The metrics.
        before, after: Each side, with its evaluations.

    Returns:
        The rows with their p, or with whether the sides' own intervals overlap; and notes on what
        could not be tested.
    """
    tests = _PairedTests(before, after)
    tested = []
    for row in rows:
        if row.change and row.subject.method:
            row = tests.test(row)
        elif row.change:
            tests.note(WITHOUT_METHOD if row.subject.run else SINGLE)
        tested.append(row)
    return tested, tests.notes


class _PairedTests:
    """Paired tests of two sides, one comparison per subject.

    Attributes:
        notes: Sentences on what could not be tested, without repetitions.
    """

    def __init__(self, before: StoredMetrics, after: StoredMetrics):
        self.before = before
        self.after = after
        self.notes: list[str] = []
        self._results: dict[Subject, TestResults | None] = {}

    def note(self, text: str) -> None:
        """Adds a note unless it is there."""
        if text not in self.notes:
            self.notes.append(text)

    def test(self, row: Change) -> Change:
        """The row with its test, or with whether the intervals overlap where none is possible."""
        if row.subject not in self._results:
            self._results[row.subject] = self._compare(row.subject)
        results = self._results[row.subject]
        if results is not None:
            return _with_test(row, results)
        interval_before = self.before.interval(row.subject, row.metric)
        interval_after = self.after.interval(row.subject, row.metric)
        return replace(row, apart=_are_apart(interval_before, interval_after))

    def _compare(self, subject: Subject) -> TestResults | None:
        from farther.evaluation.paired import compare

        try:
            return compare(self.before.replicates(subject), self.after.replicates(subject))
        except FartherError as error:
            self.note(f"{subject.run}: not tested: {error}")
            return None


def _are_apart(first: Interval | None, second: Interval | None) -> bool:
    """Whether two intervals are known and do not overlap."""
    if not first or not second:
        return False
    return first[1] < second[0] or second[1] < first[0]


def compared_methods(
    root: Path, run: str, methods: tuple[str, str], splits: Sequence[str], metrics: Sequence[str]
) -> list[Change]:
    """How the second method differs from the first, on the same images.

    Args:
        root: The folder of artifacts.
        run: A run that was evaluated.
        methods: The two methods.
        splits: OOD splits; all of the run where empty.
        metrics: Names of metrics; those that the report compares where empty.

    Raises:
        DataError: the run was not evaluated.
        ParameterError: a name is unknown.
    """
    from farther.evaluation.paired import StoredEvaluation, compare
    from farther.metrics.catalogue import COMPARED, METRICS

    evaluation = StoredEvaluation(root, run)
    known = evaluation.report.methods
    for name in methods:
        choose("method of this run", name, known)
    first = known[methods[0]].splits
    second = known[methods[1]].splits
    for name in splits:
        choose("split of this run", name, first)
    rows = []
    for split in splits or first:
        results = compare(
            evaluation.replicates(methods[0], split), evaluation.replicates(methods[1], split)
        )
        for name in metrics:
            choose("metric", name, results)
        for name in metrics or COMPARED:
            before = first[split].value(METRICS[name])
            after = second[split].value(METRICS[name])
            rows.append(_with_test(Change(Subject(run, split, ""), name, before, after), results))
    return rows


def _with_test(row: Change, results: TestResults) -> Change:
    """The row with its interval and p; as it is where its metric was not tested."""
    result = results.get(row.metric)
    if result is None:
        return row
    return replace(row, interval=result["interval"], p=result["p"])
