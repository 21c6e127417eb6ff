"""Outcomes of unknown objects by distance from what a detector knows, and sentences on them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from farther.evaluation.deploy.results import DeployChoices
from farther.evaluation.files import RunFiles
from farther.metrics.catalogue import METRICS
from farther.metrics.statistics.bootstrap import interval
from farther.report.common_runs import points
from farther.report.listing import with_and
from farther.report.outcomes import OUTCOMES, Coverage, OutcomeShares, coverage_at_distance
from farther.report.results import DISTANCES, Run, read_evaluated_runs, title_of

#: Heading of the first page where nothing has been evaluated.
NO_FINDING = "What detectors do with objects they were never taught"

#: Columns of the data of the first figure.
COLUMNS: dict[str, type[pl.DataType]] = {
    "panel": pl.String,
    "run": pl.String,
    "known": pl.String,
    "method": pl.String,
    "distance": pl.String,
    "bar": pl.Int64,
    "words": pl.String,
    "outcome": pl.String,
    "part": pl.String,
    "share": pl.Float64,
    "total": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "covered": pl.Float64,
    "alarms": pl.Float64,
    "objects": pl.Int64,
}


@dataclass(frozen=True)
class Shares:
    """Outcomes of the unknown objects of several splits together, under one method.

    Args:
        objects: Number of unknown objects.
        images: Number of the images that they are in; None where it is not known.
        counts: Outcome → the number of objects with it.
        replicates: Outcome → its share in each bootstrap replicate, ndarray of shape (B,); {}
            without replicates.
    """

    objects: int
    images: int | None
    counts: Mapping[str, int]
    replicates: Mapping[str, np.ndarray]

    def share(self, outcome: str) -> float:
        """Share of the objects with an outcome."""
        return self.counts[outcome] / self.objects

    def interval(self, outcome: str) -> tuple[float, float] | None:
        """Its 95% interval over images; None where there is none."""
        if not self.replicates:
            return None
        return interval(self.replicates[outcome], value=self.share(outcome), images=self.images)

    def printed(self, outcome: str) -> str:
        """The share in per cent, with its interval in brackets if it has one."""
        return f"{100 * self.share(outcome):.0f}%{_bracket(self.interval(outcome))}"


@dataclass(frozen=True)
class Bar:
    """A bar of the first figure: outcomes of a method of a run at a distance."""

    run: Run
    method: str
    distance: str
    shares: Shares


@dataclass(frozen=True)
class CoveredMisses:
    """What the proposals of a run cover of the missed unknown objects of a distance."""

    run: Run
    distance: str
    coverage: Coverage


@dataclass(frozen=True)
class SplitWithoutBoxes:
    """A split without boxes of unknown objects, with the outcomes of a run's images there."""

    run: Run
    method: str
    split: str
    share: float


@dataclass(frozen=True)
class Distances:
    """The evaluated runs of a report.

    Args:
        runs: All of them.
        artifacts: The artifacts folder.
        method: The method whose outcomes are shown, by its name in params.yaml; None for the
            default of each run.
    """

    runs: Sequence[Run]
    artifacts: Path
    method: str | None = None

    def shares(self, run: Run, method: str, distance: str) -> Shares | None:
        """Outcomes in all splits of a distance; None where they have no unknown object."""
        key = (run.name, method, distance)
        if key not in self._shares_by_bar:
            splits = [split.name for split in run.splits if split.distance == distance]
            self._shares_by_bar[key] = self._shares_in(run, method, splits)
        return self._shares_by_bar[key]

    @cached_property
    def _shares_by_bar(self) -> dict[tuple[str, str, str], Shares | None]:
        """The outcomes that were computed so far, by run, method and distance."""
        return {}

    def all_shares(self, run: Run, method: str) -> Shares | None:
        """Outcomes in all splits; None where they have no unknown object."""
        return self._shares_in(run, method, [split.name for split in run.splits])

    def _shares_in(self, run: Run, method: str, splits: Sequence[str]) -> Shares | None:
        """Outcomes in some splits together."""
        counts = dict.fromkeys(OUTCOMES.values(), 0)
        images = 0
        for split in splits:
            recall = run.result(split, method, METRICS["r_u"])
            if recall is not None:
                images += recall.images or 0
            for key, outcome in OUTCOMES.items():
                counts[outcome] += int(run.value(split, method, "open_set", key) or 0)
        objects = sum(counts.values())
        if not objects:
            return None
        return Shares(objects, images or None, counts, self._replicates(run, method, splits))

    def _replicates(self, run: Run, method: str, splits: Sequence[str]) -> dict[str, np.ndarray]:
        """Outcome → its share in each bootstrap replicate of the pooled splits.

        {} where a split has no replicates.
        """
        files = RunFiles(run.name, run.benchmark, self.artifacts)
        tables = []
        for split in splits:
            table = run.replicates.read(files.replicates(method, split))
            if table is None or "unknown_objects" not in table:
                return {}
            tables.append(table)

        objects = _pooled(tables, "unknown_objects")
        shares = {}
        for key, outcome in OUTCOMES.items():
            with np.errstate(invalid="ignore"):  # a replicate may have no unknown object
                shares[outcome] = _pooled(tables, key) / objects
        return shares

    def outcomes(self, bar: Bar) -> OutcomeShares:
        """The outcomes of a bar, with what proposals cover of the missed objects."""
        shares = {}
        intervals = {}
        for outcome in OUTCOMES.values():
            shares[outcome] = bar.shares.share(outcome)
            intervals[outcome] = bar.shares.interval(outcome)
        coverage = coverage_at_distance(bar.run, bar.distance)
        return OutcomeShares(bar.shares.objects, shares, intervals, coverage)

    @cached_property
    def runs_with_method(self) -> list[tuple[Run, str]]:
        """The runs, each with the method whose outcomes are shown."""
        return [(run, run.shown_method(self.method)) for run in self.runs]

    @cached_property
    def compared(self) -> list[tuple[Run, str]]:
        """Pairs of `runs_with_method` that sentences compare.

        These are detectors of boxes, or classifiers where there are no detectors.
        """
        detectors = [pair for pair in self.runs_with_method if not pair[0].whole_images]
        return detectors or self.runs_with_method

    @cached_property
    def panels(self) -> dict[str, list[Bar]]:
        """Title → its bars, the nearest first.

        Runs with one title, such as a detector trained on two ID datasets, share a panel; see
        `panel_titles`.
        """
        bars = []
        distances_by_run: dict[str, list[str]] = {}
        for run, method in [*self.runs_with_method, *self._second_method()]:
            for distance in DISTANCES:
                shares = self.shares(run, method, distance)
                if shares is not None:
                    bars.append(Bar(run, method, distance, shares))
                    distances_by_run.setdefault(run.name, [])
                    if distance not in distances_by_run[run.name]:
                        distances_by_run[run.name].append(distance)

        titles = panel_titles(self.runs, distances_by_run)
        panels: dict[str, list[Bar]] = {title: [] for title in titles.values()}
        for distance in DISTANCES:
            for bar in bars:
                if bar.distance == distance:
                    panels[titles[bar.run.name]].append(bar)
        return panels

    def _second_method(self) -> list[tuple[Run, str]]:
        """The only run with a second method: that of `choose`, or else the one that finds most.

        [] where there are several runs, or the method is shown anyway.
        """
        if len(self.runs_with_method) != 1:
            return []
        ((run, shown),) = self.runs_with_method
        method = self._chosen_method(run)
        if method in (None, shown) and self._gains:
            best = max(self._gains, key=self._gains.__getitem__)
            if self._gains[best] > 0:
                method = best
        if method is None or method == shown or method not in run.methods:
            return []
        return [(run, method)]

    def _chosen_method(self, run: Run) -> str | None:
        """The method that `choose` deploys; None where nothing can be chosen."""
        file = RunFiles(run.name, run.benchmark, self.artifacts).choice
        if not file.is_file():
            return None
        choice = DeployChoices.read(file).choice
        return choice.method if choice is not None else None

    @cached_property
    def rows(self) -> pl.DataFrame:
        """One row per bar and part of it, as the figure's data: shares with 95% intervals.

        The rows are those of `farther.report.outcomes.OutcomeShares.parts`. `bar` is the number of
        the bar in its panel, and `words` its shares in words.
        """
        rows: list[dict[str, Any]] = []
        for panel, bars in self.panels.items():
            for number, bar in enumerate(bars):
                outcomes = self.outcomes(bar)
                description = {
                    "panel": panel,
                    "run": bar.run.name,
                    "known": bar.run.known_title,
                    "method": bar.run.label(bar.method),
                    "distance": bar.distance,
                    "bar": number,
                    "words": outcomes.in_words(),
                }
                rows += [{**description, **part} for part in outcomes.parts()]
        return pl.DataFrame(rows, schema=COLUMNS)

    def outcome_sentences(self, run: Run, method: str) -> list[str]:
        """The outcomes of a run's unknown objects in words, one sentence per distance."""
        sentences = []
        has_one_distance = len({split.distance for split in run.splits}) == 1
        for distance in DISTANCES:
            shares = self.shares(run, method, distance)
            if shares is None:
                continue
            words = self.outcomes(Bar(run, method, distance, shares)).in_words()
            # Of a run with one distance, its name would tell nothing.
            name = "All" if has_one_distance else distance.capitalize()
            sentences.append(f"{name}, {shares.objects:,} objects: {words}.")
        return sentences

    def finding(self) -> str:
        """The first page's heading: what the worst detector takes unknown objects for.

        That is the detector that misclassifies the largest share of the nearest unknown objects.
        """
        bar = self._worst_bar()
        if bar is None:
            return NO_FINDING
        shares = bar.shares
        what = "unknown objects"
        if len({split.distance for split in bar.run.splits}) > 1:
            what = f"{bar.distance} unknown objects"
        categories = self._categories(bar)
        if len(categories) == 1:
            what += f" ({categories.pop()})"
        taken = f"takes {100 * shares.share('misclassified'):.0f}% of the {what}"
        name = bar.run.full_title
        if len({run.benchmark for run in self.runs}) == 1:
            name = bar.run.title
        title = f"{name} {taken} for something it knows"
        if not bar.run.whole_images:
            title += f" and misses {100 * shares.share('missed'):.0f}%"
        return title

    def _categories(self, bar: Bar) -> set[str]:
        """Categories of the unknown objects of a bar."""
        splits = [split.name for split in bar.run.splits if split.distance == bar.distance]
        return set(bar.run.categories(splits, bar.method))

    def _worst_bar(self) -> Bar | None:
        """The bar of the nearest distance with the largest misclassified share."""
        bars = self._nearest_bars()
        if not bars:
            return None
        by_name = sorted(bars, key=lambda bar: bar.run.name)
        return max(by_name, key=lambda bar: bar.shares.share("misclassified"))

    @property
    def told(self) -> tuple[Run, str, str] | None:
        """Run, split and method of the finding: the first split of its distance."""
        bar = self._worst_bar()
        if bar is None:
            return None
        for split in bar.run.splits:
            objects = bar.run.value(split.name, bar.method, "open_set", "unknown_objects")
            if split.distance == bar.distance and objects:
                return bar.run, split.name, bar.method
        return None

    def sentences(self) -> list[str]:
        """Up to five sentences on the figure, computed from the results."""
        sentences = [
            self._nearest(),
            self._proposals(),
            self._trend(),
            self.best_method(),
            self._without_boxes(),
        ]
        return [sentence for sentence in sentences if sentence]

    def _nearest(self) -> str | None:
        """The detector that misclassifies the largest share of the nearest unknown objects."""
        bars = self._nearest_bars()
        bar = self._worst_bar()
        if bar is None:
            return None
        shares = bar.shares
        # Of a run with one distance, its name would tell nothing.
        distance = ""
        if len({split.distance for split in bar.run.splits}) > 1:
            distance = f"{bar.distance} "
        clauses = [
            f"misclassifies {shares.printed('misclassified')} of the {shares.objects:,} "
            f"{distance}unknown objects as known classes"
        ]
        if len(bars) > 1:
            clauses[0] += f" ({_highest_of([other.run for other in bars])})"
        if not bar.run.whole_images:
            clauses.append(f"misses {shares.printed('missed')}")
        clauses.append(f"finds {shares.printed('found')} as unknown")
        label = bar.run.label(bar.method)
        return f"{bar.run.full_title} {with_and(clauses)} (method: {label})."

    def _nearest_bars(self) -> list[Bar]:
        """Bars of the nearest distance with unknown objects, of the compared runs."""
        for distance in DISTANCES:
            bars = []
            for run, method in self.compared:
                shares = self.shares(run, method, distance)
                if shares is not None:
                    bars.append(Bar(run, method, distance, shares))
            if bars:
                return bars
        return []

    def _proposals(self) -> str | None:
        """The run whose own proposals cover the largest share of the nearest missed objects."""
        candidates = self._nearest_covered()
        if not candidates:
            return None
        by_name = sorted(candidates, key=lambda misses: misses.run.name)
        best = max(by_name, key=lambda misses: misses.coverage.share)
        coverage = best.coverage
        alarms = f"{coverage.alarms:.2f} false alarms per ID image"
        if not coverage.share:
            return f"At {alarms}, proposals cover none of the missed unknown objects."

        shares = self.shares(best.run, best.run.shown_method(self.method), best.distance)
        if shares is None:
            return None
        distance = ""
        if len({split.distance for split in best.run.splits}) > 1:
            distance = f"{best.distance} "
        highest = ""
        if len(candidates) > 1:
            highest = f" ({_highest_of([misses.run for misses in candidates])})"
        covered = f"{100 * coverage.share:.0f}%{_bracket(coverage.interval)}"
        uncovered = f"{100 * coverage.uncovered:.0f}%{_bracket(coverage.uncovered_interval)}"
        return (
            f"Of the {distance}unknown objects, {best.run.full_title} misses "
            f"{100 * shares.share('missed'):.0f}%: at {alarms}, its proposals "
            f"({coverage.source}) cover {covered}{highest}; {uncovered} have neither a detection "
            "nor a proposal."
        )

    def _nearest_covered(self) -> list[CoveredMisses]:
        """What the proposals of each compared run cover, at the nearest distance of any."""
        runs = [run for run, _ in self.compared]
        for distance in DISTANCES:
            covered = []
            for run in runs:
                coverage = coverage_at_distance(run, distance)
                if coverage is not None:
                    covered.append(CoveredMisses(run, distance, coverage))
            if covered:
                return covered
        return []

    def _without_boxes(self) -> str | None:
        """The detector that detects a known class in most images of a split without boxes."""
        candidates = self._splits_without_boxes()
        if not candidates:
            return None
        by_name = sorted(candidates, key=lambda candidate: (candidate.run.name, candidate.split))
        worst = max(by_name, key=lambda candidate: candidate.share)
        images = worst.run.group(worst.split, worst.method, "images")
        bracket = _bracket(images["as_known"].interval)
        rank = ""
        if len(candidates) > 1:
            rank = f" (the highest of {len(candidates)} pairs of run and split)"
        return (
            f"{worst.run.full_title} detects a known class in {100 * worst.share:.0f}%{bracket} of "
            f"the {images['images'].value:,} images of {worst.split}, "
            f"in which no box of an unknown object counts{rank} "
            f"(method: {worst.run.label(worst.method)})."
        )

    def _splits_without_boxes(self) -> list[SplitWithoutBoxes]:
        """Splits of the compared runs whose unknown objects have no boxes."""
        splits = []
        for run, method in self.compared:
            for split in run.splits:
                share = run.value(split.name, method, "images", "as_known")
                objects = run.value(split.name, method, "open_set", "unknown_objects")
                if share is not None and not objects:
                    splits.append(SplitWithoutBoxes(run, method, split.name, share))
        return splits

    def _trend(self) -> str | None:
        """Change of misclassification from the nearest to the farthest distance, mean over runs."""
        ends = self._nearest_and_farthest()
        names = {(nearest.distance, farthest.distance) for nearest, farthest in ends}
        if len(names) != 1:
            return None
        ((first, last),) = names
        outcome = "misclassified"
        changes = [far.shares.share(outcome) - near.shares.share(outcome) for near, far in ends]
        change = float(np.mean(changes))

        bracket = ""
        if all(near.shares.replicates and far.shares.replicates for near, far in ends):
            change_replicates = [
                far.shares.replicates[outcome] - near.shares.replicates[outcome]
                for near, far in ends
            ]
            low, high = interval(np.mean(change_replicates, axis=0), value=change) or (
                np.nan,
                np.nan,
            )
            if low <= 0 <= high:
                return (
                    f"From {first} to {last}, the misclassified share does not change "
                    f"significantly: {100 * change:+.0f} points "
                    f"[{100 * low:+.0f}, {100 * high:+.0f}]{_mean_of(len(ends))}."
                )
            if not np.isnan(low):
                bracket = _bracket(sorted((abs(low), abs(high))))
        verb = "falls" if change < 0 else "rises"
        points = f"{100 * abs(change):.0f} points{bracket}"
        return (
            f"From {first} to {last}, the misclassified share {verb} by {points}"
            f"{_mean_of(len(ends))}."
        )

    def _nearest_and_farthest(self) -> list[tuple[Bar, Bar]]:
        """The nearest and the farthest bar of each compared run that has several.

        Distances whose splits have no unknown objects are left out.
        """
        ends = []
        for run, method in self.compared:
            bars = []
            for distance in DISTANCES:
                shares = self.shares(run, method, distance)
                if shares is not None:
                    bars.append(Bar(run, method, distance, shares))
            if len(bars) > 1:
                ends.append((bars[0], bars[-1]))
        return ends

    def best_method(self) -> str | None:
        """The method that finds most unknown objects, against the one that is shown.

        None where the runs are shown with several methods, or have no second one in common.
        """
        gains = self._gains
        if not gains:
            return None
        best = max(gains, key=gains.__getitem__)
        (reference,) = {method for _, method in self.compared}
        methods = self._common_methods()
        pairs = self._pairs_with_objects(methods)

        opening = f"Among the {len(methods)} methods that apply to every run,"
        if len(self.compared) == 1:
            opening = f"Among {len(methods)} methods,"
        replicates = []
        for run, split in pairs:
            of_pair = self._gain_replicates(run, split, best, reference)
            if of_pair is None:
                return f"{opening} {_compared(best, reference, gains[best])}."
            replicates.append(of_pair)

        ends = interval(np.mean(replicates, axis=0), value=gains[best])
        comparison = _compared(best, reference, gains[best], ends)
        significant = 0
        for of_pair in replicates:
            interval_of_pair = interval(of_pair)
            if interval_of_pair is not None and interval_of_pair[0] > 0:
                significant += 1
        if len(replicates) == 1:
            return f"{opening} {comparison}."
        return (
            f"{opening} {comparison} on average; the gain is "
            f"significant for {significant} of {len(replicates)} pairs of run and split."
        )

    @cached_property
    def _gains(self) -> dict[str, float]:
        """Method → mean gain in found objects over the one that is shown.

        {} where the runs are shown with several methods, or have no second one in common.
        """
        references = {method for _, method in self.compared}
        methods = self._common_methods()
        if len(references) != 1 or not references <= methods:
            return {}
        (reference,) = references
        pairs = self._pairs_with_objects(methods)
        if not pairs:
            return {}
        gains = {}
        for method in sorted(methods - references):
            per_pair = [_gain(run, split, method, reference) for run, split in pairs]
            gains[method] = float(np.mean(per_pair))
        return gains

    def _common_methods(self) -> set[str]:
        """Methods that all compared runs have."""
        if not self.compared:
            return set()
        return set.intersection(*(set(run.methods) for run, _ in self.compared))

    def _pairs_with_objects(self, methods: Iterable[str]) -> list[tuple[Run, str]]:
        """Runs and splits where each of some methods was measured on unknown objects."""
        pairs = []
        for run, _ in self.compared:
            for split in run.splits:
                counts = [
                    run.value(split.name, method, "open_set", "unknown_objects")
                    for method in methods
                ]
                if all(counts):
                    pairs.append((run, split.name))
        return pairs

    def _gain_replicates(
        self, run: Run, split: str, method: str, reference: str
    ) -> np.ndarray | None:
        """Paired replicates of `_gain`, ndarray of shape (B,); None where there are none."""
        of_method = self._replicates(run, method, [split]).get("found")
        of_reference = self._replicates(run, reference, [split]).get("found")
        if of_method is None or of_reference is None:
            return None
        return of_method - of_reference


def _compared(
    best: str, reference: str, gain: float, ends: tuple[float, float] | None = None
) -> str:
    """The method that finds most unknown objects, compared with another, in words.

    Args:
        best: The best of the other methods; it may find fewer than the reference.
        reference: The method that it is compared with.
        gain: Difference of the shares that they find.
        ends: Its 95% interval; None without replicates.
    """
    difference = f"{points(gain)} points"
    if ends is not None:
        low, high = ends
        difference += f" [{points(low)}, {points(high)}]"
    if round(100 * gain, 1) <= 0:
        return (
            f"none finds more unknown objects than {title_of(reference)}; {title_of(best)} comes "
            f"nearest: {difference}"
        )
    if ends is not None and not ends[0] > 0:
        return (
            f"{title_of(best)} finds the most unknown objects, but not significantly more than "
            f"{title_of(reference)}: {difference}"
        )
    return (
        f"{title_of(best)} finds the most unknown objects, {difference} compared with "
        f"{title_of(reference)}"
    )


def _gain(run: Run, split: str, method: str, reference: str) -> float:
    """Difference of two methods in the share of a split's unknown objects that is found."""
    recall = run.value(split, method, "open_set", "r_u") or 0
    reference_recall = run.value(split, reference, "open_set", "r_u") or 0
    return recall - reference_recall


def _pooled(tables: Iterable[Mapping[str, np.ndarray]], key: str) -> np.ndarray:
    """Sum of the replicates of a count over several splits, ndarray of shape (B,)."""
    return np.sum([table[key] for table in tables], axis=0)


def panel_titles(runs: Sequence[Run], distances: Mapping[str, Collection[str]]) -> dict[str, str]:
    """Run → the title of its panel.

    It is the run's own title, which runs that have no distance in common share, or its name.

    Args:
        runs: The runs.
        distances: Run → the distances that are shown of it; runs that are not there get no title.
    """
    names_by_title: dict[str, list[str]] = {}
    for run in runs:
        if run.name in distances:
            names_by_title.setdefault(run.title, []).append(run.name)

    titles: dict[str, str] = {}
    for title, names in names_by_title.items():
        distances_of_title = [distance for name in names for distance in distances[name]]
        are_disjoint = len(set(distances_of_title)) == len(distances_of_title)
        for name in names:
            titles[name] = title if are_disjoint else name
    return titles


def headline(
    params: Mapping[str, Any], root: str | Path = ".", runs: Sequence[Run] | None = None
) -> list[str]:
    """Up to five sentences on the results.

    Args:
        params: params.yaml, parsed.
        root: The project's folder.
        runs: Its evaluated runs; read from the folder when None.

    Raises:
        ParameterError: `report.method` names no method of a run, or a section of params.yaml is
            absent.
        DataError: a file is damaged.
    """
    artifacts = Path(root) / "artifacts"
    if runs is None:
        runs = read_evaluated_runs(params, artifacts)
    method = (params.get("report") or {}).get("method")
    return [*Distances(runs, artifacts, method).sentences(), *too_few(runs, artifacts)]


def too_few(runs: Sequence[Run], artifacts: Path) -> list[str]:
    """What the images are too few to show of the limits of section `deploy`, once each."""
    sentences: dict[str, None] = {}
    for run in runs:
        file = RunFiles(run.name, run.benchmark, artifacts).choice
        if file.is_file():
            sentences[DeployChoices.read(file).too_few] = None
    return [sentence for sentence in sentences if sentence]


def _bracket(ends: Sequence[float] | None) -> str:
    """An interval in per cent, as " [20, 30]"; "" where there is none."""
    if ends is None:
        return ""
    low, high = ends
    return f" [{100 * low:.0f}, {100 * high:.0f}]"


def _mean_of(runs: int) -> str:
    """What a mean is over, as ", mean over 5 runs"; "" for one run."""
    if runs > 1:
        return f", mean over {runs} runs"
    return ""


def _highest_of(runs: Sequence[Run]) -> str:
    """What a value is the highest of, as "the highest of the 5 VOC runs"."""
    benchmarks = {run.benchmark_title for run in runs}
    if len(benchmarks) > 1:
        return f"the highest of {len(runs)} runs"
    return f"the highest of the {len(runs)} {benchmarks.pop()} runs"
