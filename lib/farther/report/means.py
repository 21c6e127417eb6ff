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

from farther.evaluation.long_table import Result
from farther.evaluation.results import Number
from farther.metrics.catalogue import METRICS, Metric
from farther.metrics.statistics import bootstrap
from farther.report.distances import panel_titles
from farther.report.power import images_to_halve, replicates
from farther.report.results import (
    AVERAGED,
    DISTANCES,
    VALUES,
    Run,
    cell,
    cell_of,
    not_significant,
    title_of_split,
    with_best,
)
from farther.report.tables import ResultTable

#: What happens to unknown objects, then how well detections are separated.
SHOWN = ("nose", "ap_u", "r_u", "auroc")

#: Heading of the columns of several splits of one distance.
ALL_SPLITS = "all OOD splits"

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
    columns = _columns(run_means, distances)
    titles = panel_titles(runs, distances_by_run)
    rows: list[dict[str, Any]] = []
    for title in dict.fromkeys(titles.values()):
        part = [means for means in run_means if titles.get(means.run.name) == title]
        rows += _rows_of_title(title, part, columns, metrics)
    cells = with_best(pl.DataFrame(rows, schema=COLUMNS))
    is_compared = ~pl.col("is_best") & ~pl.col("is_few")
    shown = "Means over the splits of each distance"
    if columns.get(distances[0]) == ALL_SPLITS:
        shown = f"Means over {ALL_SPLITS}"
    elif len(distances) == 1:
        shown = f"Values on {columns[distances[0]]}"
    means_table = ResultTable(
        name="means",
        caption=f"{shown}, with 95% intervals (%).",
        labels={"Detector": "detector", "Method": "label"},
        metrics=metrics,
        cells=cells.with_columns(is_tied=pl.col("is_tied") & is_compared),
    )
    return means_table.without_same("Detector")


def _columns(run_means: Sequence[RunMeans], distances: Sequence[str]) -> dict[str, str]:
    """Distance → its title above the columns.

    A single distance has no name, as there is none to compare it with: that of its split stands
    in its place.
    """
    if len(distances) > 1:
        return {distance: distance for distance in distances}
    splits: dict[str, None] = {}
    for means in run_means:
        for name in means.run.splits_at(distances[0]):
            splits[name] = None
    if len(splits) > 1:
        return {distances[0]: ALL_SPLITS}
    return {distances[0]: title_of_split("".join(splits))}


def _rows_of_title(
    title: str,
    run_means: Sequence[RunMeans],
    columns: Mapping[str, str],
    metrics: Sequence[Metric],
) -> Iterator[dict[str, Any]]:
    """Cells of the runs that share a title: one per method, distance and metric.

    Args:
        title: The title.
        run_means: The runs, which have no distance in common.
        columns: The distances that have columns → their titles.
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
        for distance, distance_title in columns.items():
            description = {
                "run": title,
                "detector": detector,
                "method": method,
                "label": label,
                "split": distance,
                "split_title": distance_title,
                "distance": distance,
            }
            for values in _cells_at(run_means, method, distance, metrics):
                yield {**description, **values}


def _cells_at(
    run_means: Sequence[RunMeans], method: str, distance: str, metrics: Sequence[Metric]
) -> Iterator[dict[str, Any]]:
    """Cells of the run that has means of a method at a distance; without values where none has."""
    for means in run_means:
        if means.run.has_means(distance, method):
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
    def distances(self) -> list[str]:
        """The distances with means, the nearest first."""
        with_means = []
        for distance in DISTANCES:
            if any(self.run.has_means(distance, method) for method in self.run.methods):
                with_means.append(distance)
        return with_means

    @property
    def defined(self) -> set[str]:
        """Metrics with any defined mean."""
        metrics = set()
        for metric in AVERAGED:
            if any(self._means(distance, metric) for distance in self.distances):
                metrics.add(metric.name)
        return metrics

    def _means(self, distance: str, metric: Metric) -> dict[str, Result]:
        """Method → its mean at a distance; methods without are left out."""
        means = {}
        for method in self.run.methods:
            mean = self.run.mean(distance, method, metric)
            if mean is not None and mean.value is not None:
                means[method] = mean
        return means

    def cells(
        self, method: str, distance: str, metrics: Sequence[Metric]
    ) -> Iterator[dict[str, Any]]:
        """The cells of a method at a distance, without the labels of their row and column."""
        splits = self.run.splits_at(distance)
        images = sum(self.run.images(split) for split in splits)
        objects = [self.run.value(name, method, "open_set", "unknown_objects") for name in splits]
        detections = [self.run.value(name, method, "ood", "ood_regions") for name in splits]
        counts = {
            "benchmark": self.run.benchmark,
            "images": images or None,
            "objects": _sum_of(objects),
            "detections": _sum_of(detections),
        }
        for metric in metrics:
            mean = self.run.mean(distance, method, metric)
            row = {**counts, **cell_of(metric, mean)}
            row["is_few"] = any(
                self.run.is_from_few(split, method, metric.group) for split in splits
            )
            row["is_tied"] = (method, distance, metric.name) in self._tied
            row["halved"] = None
            if mean is not None and mean.interval and images:
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
                metric = METRICS[name]
                means = self._means_with_replicates(distance, metric, replicates_by_split)
                for method in self._not_worse(metric, means):
                    tied.add((method, distance, name))
        return tied

    def _means_with_replicates(
        self,
        distance: str,
        metric: Metric,
        replicates_by_split: Mapping[str, Mapping[str, Mapping[str, np.ndarray]]],
    ) -> dict[str, _Mean]:
        """Method → its mean of a metric at a distance; methods without replicates are left out."""
        means = {}
        splits = self.run.splits_at(distance)
        for method, mean in self._means(distance, metric).items():
            of_method = [replicates_by_split[split].get(method, {}) for split in splits]
            if any(metric.name not in of_split for of_split in of_method):
                continue
            per_split = [of_split[metric.name] for of_split in of_method]
            means[method] = _Mean(float(mean.value or 0.0), np.mean(per_split, axis=0))
        return means

    def _not_worse(self, metric: Metric, means: Mapping[str, _Mean]) -> Iterator[str]:
        """Methods that are not significantly different from the best one."""
        if not means or self.run.description is None:
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
            self.run.description.settings.comparisons,
        )
        for method, difference in differences.items():
            if not_significant(difference["interval"], difference["p"]):
                yield method


@dataclass(frozen=True)
class _Mean:
    """A mean over splits, and the mean of their bootstrap replicates, ndarray of shape (B,)."""

    value: float
    replicates: np.ndarray


def _sum_of(counts: Sequence[Number]) -> int | None:
    """Sum of a count over splits; None where it is 0 or unknown."""
    return sum(int(count or 0) for count in counts) or None
