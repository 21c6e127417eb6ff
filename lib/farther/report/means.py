"""The first table: means over the near, far and farther splits, with intervals, one row per detector and method."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from farther.evaluation.groups import GROUPS
from farther.evaluation.results import MeanOverSplits
from farther.metrics.catalogue import METRICS, Metric
from farther.metrics.statistics import bootstrap
from farther.report.distances import panel_titles
from farther.report.power import images_to_halve, replicates
from farther.report.results import DISTANCES, VALUES, Run, cell, with_best
from farther.report.tables import ResultTable

#: What happens to unknown objects, then how well detections are separated.
SHOWN = ("nose", "ap_u", "r_u", "auroc")

#: Columns beside `VALUES`: the row's title, and about how many images would halve the interval.
COLUMNS = {**VALUES, "detector": pl.String, "halved": pl.Int64}


def table(runs: Sequence[Run], artifacts: Path) -> ResultTable | None:
    """The table of all evaluated runs; None where none has means.

    Runs with one title, such as a detector trained on two ID datasets, share a row unless they have
    a distance in common, as they share a panel of the first figure.

    Args:
        runs: The runs.
        artifacts: The artifacts folder.
    """
    means = [RunMeans(run, artifacts) for run in runs]
    titles = panel_titles(runs, {one.run.name: one.distances for one in means if one.distances})
    metrics = tuple(METRICS[name] for name in SHOWN if any(one.has(name) for one in means))
    distances = [name for name in DISTANCES if any(name in one.distances for one in means)]
    if not metrics:
        return None
    rows: list[dict[str, Any]] = []
    for title in dict.fromkeys(titles.values()):
        part = [one for one in means if titles.get(one.run.name) == title]
        detector = part[0].run.full_title if len(part) == 1 else title
        for method in dict.fromkeys(method for one in part for method in one.run.methods):
            label = next(one.run.label(method) for one in part if method in one.run.methods)
            for distance in distances:
                place = {"run": title, "detector": detector, "method": method, "label": label}
                place |= {"split": distance, "split_title": distance, "distance": distance}
                having = next((one for one in part if distance in one.of.get(method, {})), None)
                found = (
                    having.cells(method, distance, metrics)
                    if having
                    else (cell(one, None) for one in metrics)
                )
                rows += [{**place, **one} for one in found]
    cells = with_best(pl.DataFrame(rows, schema=COLUMNS), ("run", "split", "metric"))
    cells = cells.with_columns(is_tied=pl.col("is_tied") & ~pl.col("is_best") & ~pl.col("is_few"))
    caption = "Means over the near, far and farther splits, with 95% intervals (%)."
    return ResultTable(
        "means", caption, {"Detector": "detector", "Method": "label"}, metrics, cells
    )


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
    def of(self) -> dict[str, dict[str, MeanOverSplits]]:
        """Method → distance → means."""
        return {method: dict(self.run.means(method)) for method in self.run.methods}

    @cached_property
    def distances(self) -> list[str]:
        """The distances with means, the nearest first."""
        return [name for name in DISTANCES if any(name in by for by in self.of.values())]

    def has(self, metric: str) -> bool:
        """Whether any mean of a metric is defined."""
        return any(
            mean.values.get(metric) is not None for by in self.of.values() for mean in by.values()
        )

    def cells(
        self, method: str, distance: str, metrics: Sequence[Metric]
    ) -> Iterator[dict[str, Any]]:
        """The cells of a method at a distance, without their place."""
        mean = self.of[method][distance]
        details, images = (
            [self.run.details(split, method) for split in mean.splits],
            sum(map(self.run.images, mean.splits)),
        )
        counts = {"benchmark": self.run.benchmark, "images": images or None}
        for key, group, count in (
            ("objects", "open_set", "unknown_objects"),
            ("detections", "ood", "ood_regions"),
        ):
            counts[key] = sum(int(one.of_group(group).get(count) or 0) for one in details) or None
        for metric in metrics:
            within = mean.intervals.get(metric.name)
            yield {
                **counts,
                **cell(metric, mean.values.get(metric.name), within),
                "is_few": any(
                    GROUPS[metric.group].is_from_few(one, self.run.few) for one in details
                ),
                "is_tied": (method, distance, metric.name) in self._tied,
                "halved": images_to_halve(images) if within and images else None,
            }

    @cached_property
    def _tied(self) -> set[tuple[str, str, str]]:
        """Method, distance and metric of the means that are not significantly different from the best."""
        found: set[tuple[str, str, str]] = set()
        tables = {
            split.name: replicates(self.run, split.name, self.artifacts, SHOWN)
            for split in self.run.splits
        }
        for distance in self.distances:
            for name in SHOWN:
                values, drawn = {}, {}
                for method, mean in (
                    (method, by[distance]) for method, by in self.of.items() if distance in by
                ):
                    parts = [tables[split].get(method, pl.DataFrame()) for split in mean.splits]
                    value = mean.values.get(name)
                    if value is not None and all(name in part.columns for part in parts):
                        values[method] = value
                        drawn[method] = np.mean([part[name].to_numpy() for part in parts], axis=0)
                found |= {
                    (method, distance, name)
                    for method in self._not_worse(METRICS[name], values, drawn)
                }
        return found

    def _not_worse(
        self, metric: Metric, values: dict[str, float], drawn: dict[str, np.ndarray]
    ) -> Iterator[str]:
        """Methods whose difference from the best one has an interval with zero."""
        if values and self.run.evaluation:
            best = (min if metric.higher_is_better is False else max)(
                values, key=lambda method: values[method]
            )
            compared = bootstrap.compare_with(
                best, values, drawn, self.run.evaluation.settings.comparisons
            )
            for method, difference in compared.items():
                low, high = difference["interval"] or (1, 1)
                if low <= 0 <= high:
                    yield method
