"""The first table: means over the near, far and farther splits, with intervals.

One row per detector and method.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from farther.evaluation.groups import GROUPS
from farther.evaluation.results import MeanOverSplits, SplitResults
from farther.metrics.catalogue import METRICS, Metric
from farther.metrics.statistics import bootstrap
from farther.report.distances import panel_titles
from farther.report.power import images_to_halve, replicates
from farther.report.results import DISTANCES, VALUES, Run, cell, not_significant, with_best
from farther.report.tables import ResultTable

#: What happens to unknown objects, then how well detections are separated.
SHOWN = ("nose", "ap_u", "r_u", "auroc")

#: Columns beside `VALUES`: the row's title, and about how many images would halve the interval.
COLUMNS: dict[str, type[pl.DataType]] = {**VALUES, "detector": pl.String, "halved": pl.Int64}


def table(runs: Sequence[Run], artifacts: Path) -> ResultTable | None:
    """The table of all evaluated runs; None where none has means.

    Runs with one title, such as a detector trained on two ID datasets, share a row unless they have
    a distance in common, as they share a panel of the first figure.

    Args:
        runs: The runs.
        artifacts: The artifacts folder.
    """
    run_means = [RunMeans(run, artifacts) for run in runs]
    defined: set[str] = set()
    with_means: set[str] = set()
    distances_by_run = {}
    for means in run_means:
        defined.update(means.defined)
        with_means.update(means.distances)
        if means.distances:
            distances_by_run[means.run.name] = means.distances
    metrics = tuple(METRICS[name] for name in SHOWN if name in defined)
    if not metrics:
        return None

    distances = [name for name in DISTANCES if name in with_means]
    titles = panel_titles(runs, distances_by_run)
    rows: list[dict[str, Any]] = []
    for title in dict.fromkeys(titles.values()):
        part = [means for means in run_means if titles.get(means.run.name) == title]
        rows += _rows_of_title(title, part, distances, metrics)
    cells = with_best(pl.DataFrame(rows, schema=COLUMNS))
    is_compared = ~pl.col("is_best") & ~pl.col("is_few")
    return ResultTable(
        name="means",
        caption="Means over the near, far and farther splits, with 95% intervals (%).",
        labels={"Detector": "detector", "Method": "label"},
        metrics=metrics,
        cells=cells.with_columns(is_tied=pl.col("is_tied") & is_compared),
    )


def _rows_of_title(
    title: str,
    run_means: Sequence[RunMeans],
    distances: Sequence[str],
    metrics: Sequence[Metric],
) -> Iterator[dict[str, Any]]:
    """Cells of the runs that share a title: one per method, distance and metric.

    Args:
        title: The title.
        run_means: The runs, which have no distance in common.
        distances: The distances that have columns.
        metrics: The columns below each distance.
    """
    detector = title
    if len(run_means) == 1:
        detector = run_means[0].run.full_title
    labels: dict[str, str] = {}
    for means in run_means:
        for method in means.run.methods:
            labels.setdefault(method, means.run.label(method))

    for method, label in labels.items():
        for distance in distances:
            description = {
                "run": title,
                "detector": detector,
                "method": method,
                "label": label,
                "split": distance,
                "split_title": distance,
                "distance": distance,
            }
            for values in _cells_at(run_means, method, distance, metrics):
                yield {**description, **values}


def _cells_at(
    run_means: Sequence[RunMeans], method: str, distance: str, metrics: Sequence[Metric]
) -> Iterator[dict[str, Any]]:
    """Cells of the run that has means of a method at a distance; without values where none has."""
    for means in run_means:
        if distance in means.by_method.get(method, {}):
            yield from means.cells(method, distance, metrics)
            return
    for metric in metrics:
        yield cell(metric, None)


@dataclass(frozen=True)
class RunMeans:
    """Means of the methods of a run.

    Args:
        run: The run.
        artifacts: The artifacts folder.
    """

    run: Run
    artifacts: Path

    @cached_property
    def by_method(self) -> dict[str, dict[str, MeanOverSplits]]:
        """Method → distance → means."""
        return {method: dict(self.run.means(method)) for method in self.run.methods}

    @cached_property
    def distances(self) -> list[str]:
        """The distances with means, the nearest first."""
        with_means: set[str] = set()
        for by_distance in self.by_method.values():
            with_means.update(by_distance)
        return [distance for distance in DISTANCES if distance in with_means]

    @property
    def defined(self) -> set[str]:
        """Metrics with any defined mean."""
        metrics = set()
        for by_distance in self.by_method.values():
            for mean in by_distance.values():
                for name, value in mean.values.items():
                    if value is not None:
                        metrics.add(name)
        return metrics

    def cells(
        self, method: str, distance: str, metrics: Sequence[Metric]
    ) -> Iterator[dict[str, Any]]:
        """The cells of a method at a distance, without the labels of their row and column."""
        mean = self.by_method[method][distance]
        details = [self.run.details(split, method) for split in mean.splits]
        images = sum(self.run.images(split) for split in mean.splits)
        counts = {
            "benchmark": self.run.benchmark,
            "images": images or None,
            "objects": _sum_counts(details, "open_set", "unknown_objects"),
            "detections": _sum_counts(details, "ood", "ood_regions"),
        }
        for metric in metrics:
            interval = mean.intervals.get(metric.name)
            reason = mean.no_interval.get(metric.name, "")
            row = {**counts, **cell(metric, mean.values.get(metric.name), interval, reason)}
            group = GROUPS[metric.group]
            row["is_few"] = any(group.is_from_few(split, self.run.few) for split in details)
            row["is_tied"] = (method, distance, metric.name) in self._tied
            row["halved"] = None
            if interval and images:
                row["halved"] = images_to_halve(images)
            yield row

    @cached_property
    def _tied(self) -> set[tuple[str, str, str]]:
        """Method, distance and metric of the means that are tied with the best one.

        The difference of such a mean from the best one has an interval with zero.
        """
        replicates_by_split = {}
        for split in self.run.splits:
            replicates_by_split[split.name] = replicates(self.run, split.name, self.artifacts)
        tied: set[tuple[str, str, str]] = set()
        for distance in self.distances:
            for name in SHOWN:
                means = self._means_with_replicates(distance, name, replicates_by_split)
                for method in self._not_worse(METRICS[name], means):
                    tied.add((method, distance, name))
        return tied

    def _means_with_replicates(
        self,
        distance: str,
        metric: str,
        replicates_by_split: Mapping[str, Mapping[str, pl.DataFrame]],
    ) -> dict[str, _Mean]:
        """Method → its mean of a metric at a distance; methods without replicates are left out."""
        means = {}
        for method, by_distance in self.by_method.items():
            if distance not in by_distance:
                continue
            mean = by_distance[distance]
            value = mean.values.get(metric)
            frames = [
                replicates_by_split[split].get(method, pl.DataFrame()) for split in mean.splits
            ]
            if value is None or any(metric not in frame.columns for frame in frames):
                continue
            per_split = [frame[metric].to_numpy() for frame in frames]
            means[method] = _Mean(value, np.mean(per_split, axis=0))
        return means

    def _not_worse(self, metric: Metric, means: Mapping[str, _Mean]) -> Iterator[str]:
        """Methods that are not significantly different from the best one."""
        if not means or self.run.evaluation is None:
            return
        values = {method: mean.value for method, mean in means.items()}
        if metric.higher_is_better is False:
            best = min(sorted(values), key=values.__getitem__)
        else:
            best = max(sorted(values), key=values.__getitem__)
        differences = bootstrap.compare_with(
            best,
            values,
            {method: mean.replicates for method, mean in means.items()},
            self.run.evaluation.settings.comparisons,
        )
        for method, difference in differences.items():
            if not_significant(difference["interval"], difference["p"]):
                yield method


@dataclass(frozen=True)
class _Mean:
    """A mean over splits, and the mean of their bootstrap replicates, ndarray of shape (B,)."""

    value: float
    replicates: np.ndarray


def _sum_counts(details: Sequence[SplitResults], group: str, count: str) -> int | None:
    """Sum of a count of a group of metrics over splits; None where it is 0 or unknown."""
    counts = [int(split.of_group(group).get(count) or 0) for split in details]
    return sum(counts) or None
