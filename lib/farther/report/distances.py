"""Outcomes of unknown objects by distance from what a detector knows, and the sentences that say what they show."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from farther.evaluation.files import RunFiles
from farther.metrics.statistics.bootstrap import interval
from farther.report.results import DISTANCES, Run, read_runs, title_of
from farther.tables.parquet import read_batches

#: Counts of an evaluation → outcome of an unknown object, in the order in which bars stack them.
OUTCOMES = {"tp_u": "found", "fn_missed": "missed", "fn_misclassified": "misclassified"}


@dataclass(frozen=True)
class Shares:
    """Outcomes of the unknown objects of several splits together, under one method.

    Args:
        objects: Number of unknown objects.
        counts: Outcome → how many of them have it.
        drawn: Outcome → its share in each bootstrap replicate, ndarray of shape (B,); {} without
            replicates.
    """

    objects: int
    counts: Mapping[str, int]
    drawn: Mapping[str, np.ndarray]

    def share(self, outcome: str) -> float:
        """Share of the objects with an outcome."""
        return self.counts[outcome] / self.objects

    def interval(self, outcome: str) -> tuple[float, float] | None:
        """Its 95% interval over images; None without replicates."""
        return interval(self.drawn[outcome]) if self.drawn else None


@dataclass(frozen=True)
class Distances:
    """The evaluated runs of a report.

    Args:
        runs: All of them.
        artifacts: The artifacts folder.
        wanted: The method that is shown, by its name in params.yaml; None for the default of each
            run.
    """

    runs: Sequence[Run]
    artifacts: Path
    wanted: str | None = None

    def shares(self, run: Run, method: str, distance: str) -> Shares | None:
        """Outcomes in all splits of a distance; None where they have no unknown object."""
        splits = [split.name for split in run.splits if split.distance == distance]
        counts = dict.fromkeys(OUTCOMES.values(), 0)
        for split in splits:
            of_split = run.details(split, method).of_group("open_set")
            for key, outcome in OUTCOMES.items():
                counts[outcome] += int(of_split.get(key) or 0)
        objects = sum(counts.values())
        return Shares(objects, counts, self._drawn(run, method, splits)) if objects else None

    def _drawn(self, run: Run, method: str, splits: Sequence[str]) -> dict[str, np.ndarray]:
        files = RunFiles(run.name, run.benchmark, self.artifacts)
        paths = [files.replicates(method, split) for split in splits]
        names = ("unknown_objects", *OUTCOMES)
        tables = [pl.concat(read_batches(path, names)) for path in paths if path.exists()]
        if len(tables) < len(paths) or not all(
            "unknown_objects" in table.columns for table in tables
        ):
            return {}
        total = np.sum([table["unknown_objects"].to_numpy() for table in tables], axis=0)
        with np.errstate(invalid="ignore"):
            return {
                outcome: np.sum([table[key].to_numpy() for table in tables], axis=0) / total
                for key, outcome in OUTCOMES.items()
            }

    def recovered(self, run: Run, distance: str) -> float:
        """Share of the unknown objects of a distance that the first source of a run's proposals recovers at τ_o."""
        found = run.first_source
        values = (
            found[1].distances[distance].values if found and distance in found[1].distances else {}
        )
        return float(values.get("recovered") or 0)

    @cached_property
    def shown(self) -> list[tuple[Run, str]]:
        """The runs, and the method that each is shown with."""
        return [(run, run.shown_method(self.wanted)) for run in self.runs]

    @cached_property
    def compared(self) -> list[tuple[Run, str]]:
        """Those of `shown` that sentences compare: detectors of boxes, or classifiers where there are no others."""
        return [pair for pair in self.shown if not pair[0].whole_images] or self.shown

    @cached_property
    def panels(self) -> dict[str, list[tuple[Run, str, str, Shares]]]:
        """Title → run, method, distance and outcomes of each bar, the nearest first.

        Runs with one title, such as a detector trained on two ID datasets, share a panel; see
        `panel_titles`.
        """
        bars = [
            (run, method, distance, shares)
            for run, method in self.shown
            for distance in DISTANCES
            if (shares := self.shares(run, method, distance))
        ]
        shown = {run.name: [bar[2] for bar in bars if bar[0] is run] for run, *_ in bars}
        titles = panel_titles(self.runs, shown)
        found: dict[str, list[tuple[Run, str, str, Shares]]] = {
            title: [] for title in titles.values()
        }
        for bar in sorted(bars, key=lambda bar: DISTANCES.index(bar[2])):
            found[titles[bar[0].name]].append(bar)
        return found

    @cached_property
    def rows(self) -> pl.DataFrame:
        """One row per bar and outcome, as the figure's data: shares with 95% intervals."""
        rows: list[dict[str, Any]] = []
        for panel, bars in self.panels.items():
            for run, method, distance, shares in bars:
                place = {
                    "panel": panel,
                    "run": run.name,
                    "known": run.known_title,
                    "method": method,
                }
                # Matching is of all objects here and of missed ones there: they can differ in a
                # few.
                recovered = min(self.recovered(run, distance), shares.share("missed"))
                for outcome in OUTCOMES.values():
                    low, high = shares.interval(outcome) or (None, None)
                    part: dict[str, Any] = {"low": low, "high": high, "objects": shares.objects}
                    part["share"] = shares.share(outcome)
                    if outcome == "missed" and run.first_source:
                        known = {"low": None, "high": None, "objects": shares.objects}
                        more = {"outcome": "found by proposals", "share": recovered, **known}
                        rows.append({**place, "distance": distance, **more})
                        part["share"] -= recovered
                    rows.append({**place, "distance": distance, "outcome": outcome, **part})
        texts = dict.fromkeys(("panel", "run", "known", "method", "distance", "outcome"), pl.String)
        numbers = dict.fromkeys(("share", "low", "high"), pl.Float64)
        return pl.DataFrame(rows, schema={**texts, **numbers, "objects": pl.Int64})

    def sentences(self) -> list[str]:
        """What the figure shows, in up to five sentences computed from the results."""
        found = [
            self._nearest(),
            self._proposals(),
            self._trend(),
            self.best_method(),
            self._without_boxes(),
        ]
        return [sentence for sentence in found if sentence]

    def _nearest(self) -> str | None:
        """The detector that takes most of the nearest unknown objects for a known class."""
        distance = next(
            (d for d in DISTANCES if any(self.shares(*pair, d) for pair in self.compared)), None
        )
        bars = [
            (*pair, shares)
            for pair in self.compared
            if (shares := self.shares(*pair, distance or ""))
        ]
        if not bars:
            return None
        run, method, shares = max(bars, key=lambda bar: bar[2].share("misclassified"))
        part = _percent(shares, "misclassified")
        parts = [
            f"misclassifies {part} of the {shares.objects:,} {distance} unknown objects as known classes",
            *([] if run.whole_images else [f"misses {_percent(shares, 'missed')}"]),
            f"finds {_percent(shares, 'found')} as unknown",
        ]
        parts[0] += f" (the most of {len(bars)} detectors)" if len(bars) > 1 else ""
        return f"{run.full_title} {', '.join(parts[:-1])} and {parts[-1]} (method: {run.label(method)})."

    def _proposals(self) -> str | None:
        """The detector whose own proposals recover most of the nearest unknown objects that it misses."""
        with_source = [(run, *run.first_source) for run, _ in self.compared if run.first_source]
        of_any = {distance for _, _, source in with_source for distance in source.distances}
        nearest = next((distance for distance in DISTANCES if distance in of_any), "")
        found = [(*one, nearest) for one in with_source if nearest in one[2].distances]
        if not found:
            return None
        gain = lambda one: one[2].distances[one[3]].values["recovered"] or 0  # noqa: E731
        run, name, source, distance = max(found, key=gain)
        of = source.distances[distance]
        share, before = of.values["still_missed"], of.values["missed"]
        if share is None or before is None:
            return None
        if not gain((run, name, source, distance)):
            return "Proposals recover none of the missed unknown objects."
        within = _bracket(*(of.intervals.get("still_missed") or (None, None)))
        most = f" (the most of {len(found)} detectors)" if len(found) > 1 else ""
        return (
            f"At {source.alarms:.2g} false alarms per ID image, proposals ({name}) reduce the share of "
            f"{distance} unknown objects that {run.full_title} misses from {100 * before:.0f}% to "
            f"{100 * share:.0f}%{within}{most}."
        )

    def _without_boxes(self) -> str | None:
        """The detector that takes something for a known class in most images of a split without unknown objects."""
        found = []
        for run, method in self.compared:
            for split in run.splits:
                details = run.details(split.name, method)
                share = details.of_group("images").get("as_known")
                if share is not None and not details.of_group("open_set").get("unknown_objects"):
                    found.append((share, run, method, split.name, details))
        if not found:
            return None
        share, run, method, where, details = max(found, key=lambda one: one[0])
        count = details.of_group("images")["images"]
        within = _bracket(*(details.groups["images"].intervals.get("as_known") or (None, None)))
        most = f" (the most of {len(found)} pairs of detector and split)" if len(found) > 1 else ""
        return (
            f"{run.full_title} detects a known class in {100 * share:.0f}%{within} of the {count:,} images of {where}, "
            f"which have no boxes of unknown objects{most} (method: {run.label(method)})."
        )

    def _trend(self) -> str | None:
        """Change of misclassification from the nearest to the farthest distance within a run, mean over runs."""
        pairs = []
        for run, method in self.compared:
            of_run = [
                shares for distance in DISTANCES if (shares := self.shares(run, method, distance))
            ]
            present = [d for d in DISTANCES if any(split.distance == d for split in run.splits)]
            if len(of_run) > 1:
                pairs.append((present[0], present[-1], of_run[0], of_run[-1]))
        kinds = {(first, last) for first, last, *_ in pairs}
        if len(kinds) != 1:
            return None
        (first, last), outcome = kinds.pop(), "misclassified"
        change = float(
            np.mean([far.share(outcome) - near.share(outcome) for *_, near, far in pairs])
        )
        within = ""
        if all(near.drawn and far.drawn for *_, near, far in pairs):
            drawn = np.mean(
                [far.drawn[outcome] - near.drawn[outcome] for *_, near, far in pairs], axis=0
            )
            low, high = interval(drawn) or (np.nan, np.nan)
            if low <= 0 <= high:
                return (
                    f"From {first} to {last}, the misclassified share does not change significantly: "
                    f"{100 * change:+.0f} points [{100 * low:+.0f}, {100 * high:+.0f}], {_mean_of(len(pairs))}."
                )
            within = _bracket(*sorted((abs(low), abs(high))))
        verb = "falls" if change < 0 else "rises"
        points = f"{100 * abs(change):.0f} points{within}"
        return f"From {first} to {last}, the misclassified share {verb} by {points}, {_mean_of(len(pairs))}."

    def best_method(self) -> str | None:
        """The method that finds most unknown objects, against the one that is shown."""
        reference = {method for _, method in self.compared}
        common = (
            set.intersection(*(set(run.methods) for run, _ in self.compared))
            if self.compared
            else set()
        )
        if len(reference) != 1 or not reference <= common or len(common) < 2:
            return None
        (shown,) = reference
        pairs = [
            (run, split.name)
            for run, _ in self.compared
            for split in run.splits
            if all(
                run.details(split.name, name).of_group("open_set").get("unknown_objects")
                for name in common
            )
        ]
        if not pairs:
            return None
        means = {
            name: float(np.mean([self._gain(run, split, name, shown) for run, split in pairs]))
            for name in sorted(common - reference)
        }
        best = max(means, key=lambda name: means[name])
        drawn = [
            gains
            for run, split in pairs
            if (gains := self._drawn_gain(run, split, best, shown)) is not None
        ]
        text = f"{100 * means[best]:+.1f} points"
        if len(drawn) < len(pairs):
            most = f"finds the most unknown objects: {text} compared with {title_of(shown)}"
            return f"Of {len(common)} methods, {title_of(best)} {most}."
        low, high = interval(np.mean(drawn, axis=0)) or (np.nan, np.nan)
        text += f" [{100 * low:+.1f}, {100 * high:+.1f}]"
        significant = sum((interval(one) or (0, 0))[0] > 0 for one in drawn)
        most = f"finds the most unknown objects, {text} compared with {title_of(shown)}"
        if not low > 0:
            most = f"finds the most unknown objects, but not significantly more than {title_of(shown)}: {text}"
        where = f"significant for {significant} of {len(drawn)} pairs of detector and split"
        return f"Of {len(common)} methods, {title_of(best)} {most} on average; the gain is {where}."

    def _gain(self, run: Run, split: str, method: str, reference: str) -> float:
        """Difference in the share of a split's unknown objects that is found."""
        first, second = (
            run.details(split, name).of_group("open_set") for name in (method, reference)
        )
        return (first["r_u"] or 0) - (second["r_u"] or 0)

    def _drawn_gain(self, run: Run, split: str, method: str, reference: str) -> np.ndarray | None:
        """Paired replicates of `_gain`; None where there are none."""
        first, second = (
            self._drawn(run, name, [split]).get("found") for name in (method, reference)
        )
        return None if first is None or second is None else first - second


def panel_titles(runs: Sequence[Run], distances: Mapping[str, Collection[str]]) -> dict[str, str]:
    """Run → the title that it is shown under: its own, which runs share that have no distance in common, or its name.

    Args:
        runs: The runs.
        distances: Run → the distances that are shown of it; runs that are not there get no title.
    """
    by_title: dict[str, list[str]] = {}
    for run in runs:
        if run.name in distances:
            by_title.setdefault(run.title, []).append(run.name)
    found: dict[str, str] = {}
    for title, names in by_title.items():
        present = [distance for name in names for distance in distances[name]]
        found |= {name: title if len(set(present)) == len(present) else name for name in names}
    return found


def headline(params: Mapping[str, Any], root: str | Path = ".") -> list[str]:
    """Up to three sentences on what the results show; `root` is the project's folder.

    Raises:
        ParameterError: `report.method` names no method of a run, or a section of params.yaml is
            absent.
        DataError: a file is damaged.
    """
    artifacts = Path(root) / "artifacts"
    runs = [run for run in read_runs(params, artifacts) if run.is_evaluated]
    return Distances(runs, artifacts, (params.get("report") or {}).get("method")).sentences()


def _percent(shares: Shares, outcome: str) -> str:
    return (
        f"{100 * shares.share(outcome):.0f}%{_bracket(*(shares.interval(outcome) or (None, None)))}"
    )


def _bracket(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f" [{100 * low:.0f}, {100 * high:.0f}]"


def _mean_of(runs: int) -> str:
    return f"mean over {runs} detectors" if runs > 1 else "for its one detector"
