"""One table for a terminal: means of each method over detectors and over splits of a distance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from farther.metrics.catalogue import METRICS, Metric
from farther.report.listing import percent
from farther.report.results import DISTANCES, Run, read_runs, title_of

#: The metrics: how well detections are separated, and how many unknown objects are found.
SHOWN = tuple(METRICS[name] for name in ("auroc", "r_u"))

#: Width of a column.
COLUMN_WIDTH = 9

#: Width of the methods' names.
LABEL_WIDTH = 20


def overview(params: Mapping[str, Any], root: str | Path = ".") -> str:
    """Text of at most 80 columns.

    Classifiers of whole images are left out where there are detectors of boxes.

    Args:
        params: params.yaml, parsed.
        root: The project's folder.

    Raises:
        ParameterError: a section of params.yaml is absent.
        DataError: a file is damaged.
    """
    evaluated = [run for run in read_runs(params, Path(root) / "artifacts") if run.is_evaluated]
    runs = [run for run in evaluated if not run.whole_images] or evaluated
    if not runs:
        return "no detector is evaluated yet; run `farther repro`"

    methods_of_runs: set[str] = set()
    for run in runs:
        methods_of_runs.update(run.methods)
    methods = [name for name in params["methods"] if name in methods_of_runs]
    columns = _columns(runs, methods)
    lines = [_distance_line(columns), _metric_line(columns)]
    for method in methods:
        cells = [column.text(method).rjust(COLUMN_WIDTH) for column in columns]
        line = f"{title_of(method)[: LABEL_WIDTH - 1]:<{LABEL_WIDTH}}{''.join(cells)}"
        lines.append(f"{line}{_applicable(method, runs)}".rstrip())

    detectors = ""
    if len(runs) > 1:
        detectors = f"{len(runs)} detectors (k/{len(runs)}: k of them) and "
    lines.append(f"Means in per cent, over {detectors}splits; * best.")
    lines.append("All splits: farther summary --all")
    return "\n".join(lines)


@dataclass(frozen=True)
class _Column:
    """A column: means of a metric over the splits of a distance.

    Args:
        distance: The distance.
        metric: The metric.
        means: Method → mean over the detectors that it applies to, None without a value.
    """

    distance: str
    metric: Metric
    means: Mapping[str, float | None]

    @property
    def has_values(self) -> bool:
        """True if any mean is defined."""
        return any(value is not None for value in self.means.values())

    def text(self, method: str) -> str:
        """The mean of a method, with a star if it is the best."""
        value = self.means[method]
        mark = " "
        if value is not None and value == self.metric.best(list(self.means.values())):
            mark = "*"
        return f"{percent(value)}{mark}"


def _columns(runs: Sequence[Run], methods: Sequence[str]) -> list[_Column]:
    """The columns, the nearest distance first; metrics and distances without means are left out."""
    distances: set[str] = set()
    for run in runs:
        for method in methods:
            distances.update(run.means(method))

    columns = []
    for distance in DISTANCES:
        if distance not in distances:
            continue
        for metric in SHOWN:
            means = {method: _mean(runs, method, distance, metric) for method in methods}
            columns.append(_Column(distance, metric, means))

    defined = {column.metric.name for column in columns if column.has_values}
    return [column for column in columns if column.metric.name in defined]


def _distance_line(columns: Sequence[_Column]) -> str:
    """The distances, each centred above its columns."""
    line = " " * LABEL_WIDTH
    for distance in dict.fromkeys(column.distance for column in columns):
        count = sum(column.distance == distance for column in columns)
        line += distance.center(COLUMN_WIDTH * count)
    return line.rstrip()


def _metric_line(columns: Sequence[_Column]) -> str:
    """Titles of the metrics, with their arrows."""
    line = "method".ljust(LABEL_WIDTH)
    for column in columns:
        line += f"{column.metric.title} {column.metric.arrow}".rjust(COLUMN_WIDTH)
    return line


def _applicable(method: str, runs: Sequence[Run]) -> str:
    """The number of detectors that a method applies to, as " 2/3"; "" where it applies to all."""
    count = sum(method in run.methods for run in runs)
    if count == len(runs):
        return ""
    return f" {count}/{len(runs)}"


def _mean(runs: Sequence[Run], method: str, distance: str, metric: Metric) -> float | None:
    """Mean over the detectors that a method applies to; None where none has a value."""
    values = []
    for run in runs:
        mean = run.means(method).get(distance)
        if method not in run.methods or mean is None:
            continue
        value = mean.values.get(metric.name)
        if value is not None:
            values.append(value)
    if not values:
        return None
    return float(np.mean(values))
