"""Training seeds of one detector as one row.

Its values are mean ± standard deviation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import polars as pl

from farther.errors import ParameterError
from farther.report.listing import ABSENT
from farther.report.results import Run, with_best

#: Metrics of `detector.json` that are averaged.
DETECTOR = ("map50", "map", "accuracy", "accuracy_top5", "nll", "ece", "threshold")


@dataclass(frozen=True)
class MergedRun(Run):
    """A row of a benchmark's tables that is not one run.

    Args:
        merged: Its values; see `Run.values`.
    """

    merged: pl.DataFrame = field(default_factory=pl.DataFrame, compare=False, repr=False)

    @classmethod
    def of(cls, title: str, first: Run, values: pl.DataFrame) -> MergedRun:
        """The row of several runs.

        Args:
            title: Its title.
            first: The first of the runs.
            values: Their values as one.
        """
        description = {field.name: getattr(first, field.name) for field in fields(first)}
        return cls(**{**description, "name": title, "title": title}, merged=values)

    @property
    def values(self) -> pl.DataFrame:
        """Its values."""
        return self.merged


def merge_seeds(runs: Sequence[Run], seeds: Mapping[str, Sequence[str]]) -> list[Run]:
    """The runs, with those of several seeds as one, in the place of the first of them.

    Args:
        runs: All runs of a benchmark.
        seeds: Name → the runs that differ in their training seed only; see `ReportSettings`.

    Returns:
        Runs whose values are means, and whose texts are mean ± sample standard deviation, in per
        cent. A name that only one run exists of has this run's values.

    Raises:
        ParameterError: the runs of one name are on different benchmarks.
    """
    title_of_run = {}
    for title, names in seeds.items():
        for name in names:
            title_of_run[name] = title
    runs_by_title: dict[str, list[Run]] = {}
    for run in runs:
        title = title_of_run.get(run.name, run.name)
        runs_by_title.setdefault(title, []).append(run)

    merged_runs = []
    for title, runs_of_title in runs_by_title.items():
        first = runs_of_title[0]
        if title not in seeds:
            merged_runs.append(first)
        elif len(runs_of_title) == 1:
            values = first.values.with_columns(run=pl.lit(title))
            merged_runs.append(MergedRun.of(title, first, values))
        else:
            merged_runs.append(_mean_run(title, runs_of_title))
    return merged_runs


def on_one_benchmark(
    seeds: Mapping[str, Sequence[str]], params: Mapping[str, Any]
) -> dict[str, list[str]]:
    """The names of `seeds` whose runs are on one benchmark.

    The other names have runs on divisions of one dataset's classes. These have no benchmark in
    common whose table could have their mean; `statistics` has it.

    Args:
        seeds: Name → runs; see `ReportSettings`.
        params: All of params.yaml.

    Raises:
        ParameterError: the runs of one name are on different benchmarks that are not divisions of
            one dataset.
    """
    names_by_title = {}
    for title, names in seeds.items():
        benchmarks = {params["detectors"][name]["benchmark"] for name in names}
        if len(benchmarks) < 2:
            names_by_title[title] = list(names)
            continue
        entries = [params["benchmarks"][name] for name in benchmarks]
        datasets = {entry["id"] for entry in entries}
        are_divisions = all(entry.get("division") for entry in entries)
        if not are_divisions or len(datasets) > 1:
            raise ParameterError(
                f"report.seeds.{title}: {', '.join(names)} are on different benchmarks, "
                "which are not divisions of one dataset's classes"
            )
    return names_by_title


def statistics(runs: Sequence[Run], seeds: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Mean and sample standard deviation over seeds, the content of `artifacts/seeds.json`.

    Returns:
        {name: {"seeds": their number, "detector": {metric: …}, split: {method: {metric: …}}}} with
        values {"mean": …, "sd": …}; metrics that a run lacks are left out.
    """
    by_title: dict[str, Any] = {}
    for title, names in seeds.items():
        runs_of_title = [run for run in runs if run.name in names and run.is_evaluated]
        if len(runs_of_title) < 2:
            continue
        entry: dict[str, Any] = {
            "seeds": len(runs_of_title),
            "detector": _detector_statistics(runs_of_title),
        }
        for row in _statistics_of_values(runs_of_title).iter_rows(named=True):
            if row["count"] == len(runs_of_title):
                of_split = entry.setdefault(row["split"], {})
                of_method = of_split.setdefault(row["method"], {})
                of_method[row["metric"]] = {"mean": row["value"], "sd": row["sd"]}
        by_title[title] = entry
    return by_title


def _mean_run(title: str, runs: Sequence[Run]) -> Run:
    """A run whose values are means over several runs.

    Raises:
        ParameterError: they are on different benchmarks.
    """
    if len({run.benchmark for run in runs}) > 1:
        names = ", ".join(run.name for run in runs)
        raise ParameterError(f"report.seeds.{title}: {names} are on different benchmarks")

    return MergedRun.of(title, runs[0], _mean_values(title, runs))


def _mean_values(title: str, runs: Sequence[Run]) -> pl.DataFrame:
    """Means over runs as `Run.values`; a value that a run lacks has no mean."""
    is_complete = pl.col("count") == len(runs)
    mean = (100 * pl.col("value")).round(1)
    sd = (100 * pl.col("sd")).round(1)
    text = pl.format("{} ± {}", mean.cast(pl.String), sd.cast(pl.String))
    has_text = is_complete & pl.col("sd").is_not_null()
    values = _statistics_of_values(runs).with_columns(
        run=pl.lit(title),
        value=pl.when(is_complete).then("value"),
        printed=pl.when(is_complete).then(mean),
        text=pl.when(has_text).then(text).otherwise(pl.lit(ABSENT)),
        low=pl.lit(None, pl.Float64),
        high=pl.lit(None, pl.Float64),
        interval=pl.lit(""),
        is_tied=pl.lit(value=False),
    )
    return with_best(values.select(runs[0].values.columns))


def _statistics_of_values(runs: Sequence[Run]) -> pl.DataFrame:
    """One row per split, method and metric, with statistics over the runs.

    Returns:
        The columns of `Run.values`, where `value` is the mean and the others are those of the first
        run; `sd`; and `count`, the number of values.
    """
    keys = ["split", "method", "metric"]
    unchanged = [name for name in runs[0].values.columns if name not in (*keys, "value")]
    values = pl.concat([run.values for run in runs])
    return values.group_by(keys, maintain_order=True).agg(
        pl.col(*unchanged).first(),
        pl.col("value").mean(),
        sd=pl.col("value").std(),
        count=pl.col("value").count(),
    )


def _detector_statistics(runs: Sequence[Run]) -> dict[str, dict[str, float]]:
    """Metric of `DETECTOR` → mean and sample standard deviation over several runs.

    Metrics that a run lacks are left out.
    """
    by_metric = {}
    for metric in DETECTOR:
        values = [run.detector.get(metric) for run in runs]
        if None not in values:
            by_metric[metric] = {
                "mean": float(np.mean(values)),  # type: ignore[arg-type]
                "sd": float(np.std(values, ddof=1)),  # type: ignore[arg-type]
            }
    return by_metric
