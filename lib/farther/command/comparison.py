"""How metrics differ between two commits, folders or methods, and whether by more than chance."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from farther.command.stored_metrics import Interval, StoredMetrics, Subject, Values
from farther.errors import AmbiguousNameError, FartherError, ParameterError, choose
from farther.evaluation import paired
from farther.evaluation.groups import GROUPS
from farther.evaluation.paired import StoredEvaluation
from farther.metrics.catalogue import COMPARED, METRICS, metric_name
from farther.naming.canonical_names import choose_entry

#: p below which a change counts as more than chance.
LEVEL = 0.05

#: Settings of an evaluation that must be the same of two runs that are compared.
COMPARABLE_SETTINGS = ("id_split", "iou", "protocol", "aupr", "replicates", "seed", "drawn_images")

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
    selection = _canonical(selection, rows)
    selected = [row for row in rows if selection.includes(row)]
    if not selected:
        raise ParameterError(
            "no metric matches all of these: omit --run, --split, --method or --metric"
        )
    return selected


def _canonical(selection: Selection, rows: Sequence[Change]) -> Selection:
    """A selection with the names that metrics have, for any of their names.

    Raises:
        ParameterError: no metric has a name; names the first such name.
    """
    known_by_kind: dict[str, set[str]] = {}
    for kind in selection.names_by_kind():
        known_by_kind[kind] = {row.names[kind] for row in rows} - {""}
    for kind in ("run", "split"):
        for name in selection.names_by_kind()[kind] or ():
            choose(kind, name, known_by_kind[kind])
    methods: dict[str, dict[str, str]] = {name: {} for name in known_by_kind["method"]}
    return replace(
        selection,
        method=[choose_entry("method", name, methods) for name in selection.method or ()],
        metric=[metric_name(name, known_by_kind["metric"]) for name in selection.metric or ()],
    )


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
        try:
            return paired.compare(self.before.replicates(subject), self.after.replicates(subject))
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
) -> tuple[tuple[str, str], list[Change]]:
    """How the second method differs from the first, on the same images.

    Args:
        root: The folder of artifacts.
        run: A run that was evaluated.
        methods: The two methods, by any of their names.
        splits: OOD splits; all of the run where empty.
        metrics: Names of metrics; those that the report compares where empty.

    Returns:
        The names of the methods in the run, and one change per split and metric.

    Raises:
        DataError: the run was not evaluated.
        ParameterError: a name is unknown, or both names are of one method.
    """
    evaluation = StoredEvaluation(root, run)
    before_name = evaluated_method(evaluation, methods[0])
    after_name = evaluated_method(evaluation, methods[1])
    if before_name == after_name:
        raise ParameterError(f"--methods compares two methods; {before_name} was named twice")
    for name in splits:
        choose("split of this run", name, evaluation.ood_splits)
    rows = []
    for split in _unique(splits) or evaluation.ood_splits:
        results = paired.compare(
            evaluation.replicates(before_name, split), evaluation.replicates(after_name, split)
        )
        metric_names = [compared_metric(metric, results) for metric in metrics]
        for name in _unique(metric_names) or COMPARED:
            before = evaluation.result(split, before_name, METRICS[name]).value
            after = evaluation.result(split, after_name, METRICS[name]).value
            rows.append(_with_test(Change(Subject(run, split, ""), name, before, after), results))
    return (before_name, after_name), rows


def _unique(names: Iterable[str]) -> list[str]:
    """Names without repetitions, which several names of one thing may come to."""
    return list(dict.fromkeys(names))


def compared_metric(name: str, known: Iterable[str]) -> str:
    """The metric that a user names, of those that are compared.

    Raises:
        ParameterError: there is no such metric, or it is not compared.
        AmbiguousNameError: several may be meant; the message lists them.
    """
    known = list(known)
    try:
        return metric_name(name, known)
    except AmbiguousNameError:
        raise
    except ParameterError as error:
        try:
            metric = metric_name(name)
        except ParameterError:
            raise error from None
        raise ParameterError(
            f"{metric} is not one of the metrics that are compared here: {', '.join(sorted(known))}"
        ) from None


def evaluated_method(evaluation: StoredEvaluation, name: str) -> str:
    """The method of a run that a user names, by any of its names.

    Raises:
        ParameterError: the run has no such method, with the nearest ones; or the method does not
            apply to it, with the reason.
        AmbiguousNameError: several may be meant; the message lists them.
    """
    not_applicable = evaluation.description.not_applicable
    entries: dict[str, dict[str, str]] = {entry: {} for entry in not_applicable}
    for entry, fitted in evaluation.description.fitted.items():
        entries[entry] = {"method": fitted.name}
    method = choose_entry("method of this run", name, entries)
    if method in not_applicable:
        reason = not_applicable[method]
        raise ParameterError(f"{method} does not apply to {evaluation.run}: {reason}")
    return method


@dataclass(frozen=True)
class RunPair:
    """Two runs on the same images of one benchmark: two detectors.

    Args:
        first, second: Their evaluations.
    """

    first: StoredEvaluation
    second: StoredEvaluation

    def check(self) -> None:
        """Raises a ParameterError where the two cannot be compared, and says why."""
        first = self.first.description
        second = self.second.description
        if first.benchmark != second.benchmark:
            raise ParameterError(
                f"{self.first.run} is a run on benchmark {first.benchmark!r}, {self.second.run} on "
                f"{second.benchmark!r}: two runs are compared on the same images, so name two of "
                "one benchmark"
            )
        if self.first.is_classifier != self.second.is_classifier:
            raise ParameterError(
                f"{self.first.run} and {self.second.run} cannot be compared: one is an object "
                "detector, the other an image classifier"
            )
        different = []
        for name in COMPARABLE_SETTINGS:
            if getattr(first.settings, name) != getattr(second.settings, name):
                different.append(name)
        if different:
            raise ParameterError(
                f"{self.first.run} and {self.second.run} were evaluated with different settings "
                f"({', '.join(different)}): run `farther repro`"
            )
        self.check_images(self.first.id_split)

    def check_images(self, split: str) -> None:
        """Raises a ParameterError where the two read different images of a split."""
        first = self.first
        second = self.second
        for inputs in ("images", "objects", "readable"):
            hash_of_first = first.description.inputs[split].get(inputs)
            if hash_of_first == second.description.inputs[split].get(inputs):
                continue
            subject = "annotations" if inputs == "objects" else "images"
            raise ParameterError(
                f"{first.run} and {second.run} were evaluated on different {subject} of split "
                f"{split!r} ({_image_count(first, split)} and {_image_count(second, split)}), so "
                "they cannot be paired: run `farther repro`, or choose other splits with --split"
            )

    @property
    def methods(self) -> list[str]:
        """The methods that apply to both."""
        methods_of_second = self.second.description.fitted
        return [name for name in self.first.description.fitted if name in methods_of_second]

    @property
    def baseline(self) -> list[str]:
        """The baseline of both, or else their first common method; empty where there is none."""
        baseline = self.first.description.baseline
        if baseline is not None and baseline in self.methods:
            return [baseline]
        return self.methods[:1]

    @property
    def splits(self) -> list[str]:
        """The OOD splits of both."""
        return [name for name in self.first.ood_splits if name in self.second.description.inputs]

    def detector_changes(self, metrics: Sequence[str] | None) -> tuple[list[Change], list[str]]:
        """How the detectors differ on known objects of the ID split.

        Args:
            metrics: Names of metrics; all where None.

        Returns:
            The metrics, and notes on what could not be tested.
        """
        before = self.first.detector_metrics()
        after = self.second.detector_metrics()
        names = [name for name in before if metrics is None or name in metrics]
        if not names:
            return [], []
        results: TestResults = {}
        notes = []
        try:
            replicates = self.first.detector_replicates()
            results = paired.compare(replicates, self.second.detector_replicates())
        except FartherError as error:
            notes.append(f"Metrics of the detectors alone are not tested: {error}")
        subject = Subject("", self.first.id_split, "")
        rows = []
        for name in names:
            rows.append(_with_test(Change(subject, name, before[name], after[name]), results))
        return rows, notes

    def method_changes(
        self, method: str, split: str, metrics: Sequence[str] | None
    ) -> list[Change]:
        """How the detectors differ with a method on an OOD split.

        Args:
            method: A method of both.
            split: An OOD split of both.
            metrics: Names of metrics; those that the report compares where None.
        """
        self.check_images(split)
        results: TestResults = {}
        if self.first.description.settings.replicates:
            replicates = self.first.replicates(method, split)
            results = paired.compare(replicates, self.second.replicates(method, split))
        rows = []
        for name in COMPARED if metrics is None else metrics:
            before = self.first.result(split, method, METRICS[name]).value
            after = self.second.result(split, method, METRICS[name]).value
            row = Change(Subject("", split, method), name, before, after)
            rows.append(_with_test(row, results))
        return rows


def _image_count(evaluation: StoredEvaluation, split: str) -> str:
    """The number of images of a split, and of those that the detector could not read."""
    counts = evaluation.results.table.values("split", split=split)
    images = counts["images"].value
    failed_images = counts["failed_images"].value
    if failed_images:
        return f"{images} images, {failed_images} unreadable"
    return f"{images} images"


def compared_runs(
    root: Path, runs: tuple[str, str], selection: Selection
) -> tuple[list[Change], list[str]]:
    """How the second run differs from the first, on the same images of one benchmark.

    Replicates of both are of the same draws of images, so that their difference is tested with the
    difficulty of images cancelled out.

    Args:
        root: The folder of artifacts.
        runs: Two runs that were evaluated.
        selection: Splits, methods and metrics, by any of their names. By default all splits, the
            baseline, the detector's own metrics, and the metrics that the report compares.

    Returns:
        The metrics, with the detectors' own first, and notes.

    Raises:
        DataError: a run was not evaluated.
        ParameterError: the runs cannot be compared, or a name is unknown.
    """
    if runs[0] == runs[1]:
        raise ParameterError(f"--runs compares two runs; {runs[0]} was named twice")
    pair = RunPair(StoredEvaluation(root, runs[0]), StoredEvaluation(root, runs[1]))
    pair.check()

    methods = _common_methods(pair, selection.method or [])
    splits = [choose("split of both runs", name, pair.splits) for name in selection.split or []]
    splits = _unique(splits)
    own_metrics, method_metrics = _metrics_of_pair(pair, selection.metric)
    rows: list[Change] = []
    notes: list[str] = []
    if own_metrics is None or own_metrics:
        rows, notes = pair.detector_changes(own_metrics)
    if method_metrics is None or method_metrics:
        for split in splits or pair.splits:
            for method in methods or pair.baseline:
                rows += pair.method_changes(method, split, method_metrics)
        notes += _notes_of_pair(pair, methods)
    return rows, notes


def compare(
    first: str,
    second: str,
    folder: str | Path = ".",
    *,
    methods: Sequence[str] | None = None,
    splits: Sequence[str] | None = None,
    metrics: Sequence[str] | None = None,
) -> pl.DataFrame:
    """How one detector differs from another on the same images, as `farther compare --runs`.

    Args:
        first, second: Two runs of a project that were evaluated on one benchmark.
        folder: The project's folder.
        methods, splits, metrics: By any of their names; by default the baseline, all splits, and
            the metrics that the report compares.

    Returns:
        One row per split, method ("" for the detector alone) and metric: `first` and `second`, the
        values; `difference`, second − first; `low` and `high`, its 95% interval over resampled
        images, and `p`, null where it is not tested; `result`: "better" or "worse" where the second
        is so significantly, "different", or "".

    Raises:
        DataError: a run was not evaluated.
        ParameterError: the runs cannot be compared, or a name is unknown.
    """
    selection = Selection(None, splits, methods, metrics)
    rows, _ = compared_runs(Path(folder) / "artifacts", (first, second), selection)
    cells = []
    for row in rows:
        low, high = row.interval or (None, None)
        cells.append(
            {
                "split": row.subject.split,
                "method": row.subject.method,
                "metric": row.metric,
                "first": row.before,
                "second": row.after,
                "difference": row.change,
                "low": low,
                "high": high,
                "p": row.p,
                "result": row.result,
            }
        )
    return pl.DataFrame(cells, infer_schema_length=None)


def _common_methods(pair: RunPair, names: Sequence[str]) -> list[str]:
    """The methods of both runs that a user names."""
    methods = []
    for name in names:
        method = evaluated_method(pair.first, name)
        methods.append(evaluated_method(pair.second, method))
    return _unique(methods)


def _metrics_of_pair(
    pair: RunPair, names: Sequence[str] | None
) -> tuple[list[str] | None, list[str] | None]:
    """The metrics of the detectors, and those of methods, that a user names; None for all."""
    if not names:
        return None, None
    known_own = pair.first.detector_metrics()
    known = [*known_own, *(name for name, metric in METRICS.items() if metric.group in GROUPS)]
    own = []
    of_methods = []
    for metric in _unique(compared_metric(name, known) for name in names):
        if metric in known_own:
            own.append(metric)
        else:
            of_methods.append(metric)
    return own, of_methods


def _notes_of_pair(pair: RunPair, methods: Sequence[str]) -> list[str]:
    """Sentences on classes and t* of both, and on the methods that are not shown."""
    first = pair.first
    second = pair.second
    notes = []
    if _known_classes(first) != _known_classes(second):
        notes.append("The two know different classes, so their metrics are of different objects.")
    notes += [
        f"Each detector has its own t*: {first.results.detector['threshold']:.4g} of "
        f"{first.run}, {second.results.detector['threshold']:.4g} of {second.run}."
    ]
    others = [name for name in pair.methods if name not in pair.baseline]
    if not methods and others:
        notes.append(
            f"Shown: {', '.join(pair.baseline)}. --method adds others that both have: "
            f"{', '.join(others)}."
        )
    return notes


def _known_classes(evaluation: StoredEvaluation) -> set[str]:
    """The known classes that a detector was evaluated on."""
    return set(evaluation.results.table.by_part("detector", "class", split=evaluation.id_split))


def _with_test(row: Change, results: TestResults) -> Change:
    """The row with its interval and p; as it is where its metric was not tested."""
    result = results.get(row.metric)
    if result is None:
        return row
    return replace(row, interval=result["interval"], p=result["p"])
