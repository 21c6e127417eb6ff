"""Several training seeds of one detector, or divisions of one benchmark, as one row: mean ± standard deviation."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from farther.errors import ParameterError
from farther.report.listing import ABSENT
from farther.report.results import Run, with_best

#: Metrics of `detector.json` that are averaged.
DETECTOR = ("map50", "map", "accuracy", "accuracy_top5", "nll", "ece", "threshold")


def merged(
    runs: Sequence[Run], seeds: Mapping[str, Sequence[str]], divisions: Collection[str] = ()
) -> list[Run]:
    """The runs, with those of several seeds in one, in the place of the first of them.

    Args:
        runs: All runs of a benchmark.
        seeds: Name → the runs that differ in their training seed only; see `ReportSettings`.
        divisions: Benchmarks that divide the classes of their ID dataset; runs on several of them
            may be in one name.

    Returns:
        Runs whose values are means, and whose texts are mean ± sample standard deviation, in per
        cent. A name of which one run is there has this run's values.

    Raises:
        ParameterError: the runs of one name are on different benchmarks.
    """
    of = {name: title for title, names in seeds.items() for name in names}
    parts: dict[str, list[Run]] = {}
    for run in runs:
        parts.setdefault(of.get(run.name, run.name), []).append(run)
    together = []
    for title, part in parts.items():
        if title not in seeds:
            together.append(part[0])
        elif len(part) == 1:
            values = part[0].values.with_columns(run=pl.lit(title))
            together.append(replace(part[0], name=title, title=title, values=values))
        else:
            together.append(_mean(title, part, divisions))
    return together


def on_one_benchmark(
    seeds: Mapping[str, Sequence[str]], params: Mapping[str, Any]
) -> dict[str, list[str]]:
    """The names of `seeds` whose runs are on one benchmark; the others are on divisions of one dataset's classes.

    Runs on divisions have no benchmark in common whose table could have their mean; `statistics`
    has it.

    Args:
        seeds: Name → runs; see `ReportSettings`.
        params: All of params.yaml.

    Raises:
        ParameterError: the runs of one name are on different benchmarks that are not divisions of
            one dataset.
    """
    found = {}
    for title, names in seeds.items():
        benchmarks = {params["detectors"][name]["benchmark"] for name in names}
        if len(benchmarks) < 2:
            found[title] = list(names)
            continue
        entries = [params["benchmarks"][name] for name in benchmarks]
        are_divided = all(entry.get("division") for entry in entries)
        datasets = {entry["id"] for entry in entries}
        if not are_divided or len(datasets) > 1:
            raise ParameterError(
                f"report.seeds.{title}: {', '.join(names)} are on different benchmarks, which are not divisions of one "
                "dataset's classes"
            )
    return found


def statistics(runs: Sequence[Run], seeds: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Mean and sample standard deviation over seeds, as `artifacts/seeds.json` holds them.

    Returns:
        {name: {"seeds": their number, "detector": {metric: …}, split: {method: {metric: …}}}} with
        values {"mean": …, "sd": …}; metrics that a run lacks are left out.
    """
    found: dict[str, Any] = {}
    for title, names in seeds.items():
        part = [run for run in runs if run.name in names and run.is_evaluated]
        if len(part) < 2:
            continue
        of_detector = {metric: [run.detector.get(metric) for run in part] for metric in DETECTOR}
        detector = {m: _mean_sd(values) for m, values in of_detector.items() if None not in values}
        entry: dict[str, Any] = {"seeds": len(part), "detector": detector}
        for row in _together(part).iter_rows(named=True):
            if row["count"] == len(part):
                of_method = entry.setdefault(row["split"], {}).setdefault(row["method"], {})
                of_method[row["metric"]] = {"mean": row["value"], "sd": row["sd"]}
        found[title] = entry
    return found


def _mean(title: str, runs: Sequence[Run], divisions: Collection[str]) -> Run:
    benchmarks = {run.benchmark for run in runs}
    if len(benchmarks) > 1 and not benchmarks <= set(divisions):
        names = ", ".join(run.name for run in runs)
        raise ParameterError(
            f"report.seeds.{title}: {names} are on different benchmarks that do not divide one dataset's classes"
        )
    known_title = runs[0].known_title
    if len(benchmarks) > 1:
        known_title = f"{len(benchmarks)} divisions"
    together = _together(runs)
    complete = pl.col("count") == len(runs)
    text = pl.format(
        "{} ± {}", *((100 * pl.col(name)).round(1).cast(pl.String) for name in ("value", "sd"))
    )
    values = together.with_columns(
        run=pl.lit(title),
        value=pl.when(complete).then("value"),
        printed=pl.when(complete).then((100 * pl.col("value")).round(1)),
        text=pl.when(complete & pl.col("sd").is_not_null()).then(text).otherwise(pl.lit(ABSENT)),
        low=pl.lit(None, pl.Float64),
        high=pl.lit(None, pl.Float64),
        interval=pl.lit(""),
        is_tied=pl.lit(value=False),
    ).drop("sd", "count")
    measured = {metric: [run.detector.get(metric) for run in runs] for metric in DETECTOR}
    detector = {metric: _mean_sd(of)["mean"] for metric, of in measured.items() if None not in of}
    return replace(
        runs[0],
        name=title,
        title=title,
        known_title=known_title,
        values=with_best(values.select(runs[0].values.columns)),
        detector=detector,
    )


def _together(runs: Sequence[Run]) -> pl.DataFrame:
    """One row per split, method and metric: mean `value`, `sd` and number of values over the runs."""
    place = ["split", "method", "metric"]
    other = [name for name in runs[0].values.columns if name not in (*place, "value")]
    return (
        pl.concat([run.values for run in runs])
        .group_by(place, maintain_order=True)
        .agg(
            pl.col(*other).first(),
            pl.col("value").mean(),
            sd=pl.col("value").std(),
            count=pl.col("value").count(),
        )
    )


def _mean_sd(values: Sequence[Any]) -> dict[str, float]:
    return {
        "mean": float(np.mean(values)),
        "sd": float(np.std(values, ddof=1)) if len(values) > 1 else 0.0,
    }
