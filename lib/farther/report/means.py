"""The first table: means over the near, far and farther splits, with intervals, one row per detector and method."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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

    Runs with one title, such as a detector trained on two ID datasets, share a row unless they have a distance in
    common, as they share a panel of the first figure.

    Args:
        runs: The runs.
        artifacts: The artifacts folder.
    """
    means = {run.name: {method: run.means(method) for method in run.methods} for run in runs}
    present = {run.name: [d for d in DISTANCES if any(d in of for of in means[run.name].values())] for run in runs}
    titles = panel_titles(runs, {name: of for name, of in present.items() if of})
    names = [
        name for name in SHOWN if any(_has(of, name) for by in means.values() for m in by.values() for of in m.values())
    ]
    distances = [d for d in DISTANCES if any(d in of for of in present.values())]
    if not names:
        return None
    tied = {run.name: _tied(run, means[run.name], names, artifacts) for run in runs}
    rows: list[dict[str, Any]] = []
    for title in dict.fromkeys(titles.values()):
        part = [run for run in runs if titles.get(run.name) == title]
        label = part[0].full_title if len(part) == 1 else title
        for method in dict.fromkeys(method for run in part for method in run.methods):
            for distance in distances:
                run = next((one for one in part if distance in means[one.name].get(method, {})), None)
                place = {"run": title, "detector": label, "method": method, "split": distance, "split_title": distance}
                if run is None:
                    place["label"] = next(one.label(method) for one in part if method in one.methods)
                    rows += [{**place, **cell(METRICS[name], None)} for name in names]
                else:
                    found = means[run.name][method][distance]
                    rows += _cells(place, run, found, [METRICS[name] for name in names], tied[run.name])
    cells = with_best(pl.DataFrame(rows, schema=COLUMNS), ("run", "split", "metric"))
    cells = cells.with_columns(is_tied=pl.col("is_tied") & ~pl.col("is_best") & ~pl.col("is_few"))
    caption = "Means over the near, far and farther splits, with 95% intervals (%)."
    labels = {"Detector": "detector", "Method": "label"}
    return ResultTable("means", caption, labels, tuple(METRICS[name] for name in names), cells)


def _has(found: MeanOverSplits, name: str) -> bool:
    return found.values.get(name) is not None


def _cells(
    place: Mapping[str, Any],
    run: Run,
    found: MeanOverSplits,
    metrics: Sequence[Metric],
    tied: set[tuple[str, str, str]],
) -> Iterator[dict[str, Any]]:
    """The cells of a method at a distance."""
    method, images = place["method"], sum(run.images(split) for split in found.splits)
    details = [run.details(split, method) for split in found.splits]
    counts = {"images": images or None}
    for key, group, count in (("objects", "open_set", "unknown_objects"), ("detections", "ood", "ood_regions")):
        counts[key] = sum(int(one.of_group(group).get(count) or 0) for one in details) or None
    for metric in metrics:
        within = found.intervals.get(metric.name)
        few = any(GROUPS[metric.group].is_from_few(one, run.few) for one in details)
        tie = (method, place["split"], metric.name) in tied
        halved = images_to_halve(images) if within and images else None
        value = cell(metric, found.values.get(metric.name), within)
        about = {
            "benchmark": run.benchmark,
            "label": run.label(method),
            "is_few": few,
            "is_tied": tie,
            "halved": halved,
        }
        yield {**place, **counts, **value, **about}


def _tied(
    run: Run, means: Mapping[str, Mapping[str, MeanOverSplits]], names: Sequence[str], artifacts: Path
) -> set[tuple[str, str, str]]:
    """Method, distance and metric of the means that are not significantly different from the best of the run."""
    found: set[tuple[str, str, str]] = set()
    tables = {split.name: replicates(run, split.name, artifacts) for split in run.splits}
    for distance in DISTANCES:
        of = {method: by[distance] for method, by in means.items() if distance in by}
        for name in names:
            drawn, values = {}, {}
            for method, mean in of.items():
                parts = [tables[split].get(method, pl.DataFrame()) for split in mean.splits]
                if (value := mean.values.get(name)) is not None and all(name in part.columns for part in parts):
                    values[method], drawn[method] = value, np.mean([part[name].to_numpy() for part in parts], axis=0)
            if values and run.evaluation:
                best = (min if METRICS[name].higher_is_better is False else max)(values, key=lambda m: values[m])
                compared = bootstrap.compare_with(best, values, drawn, run.evaluation.settings.comparisons)
                for method, difference in compared.items():
                    low, high = difference["interval"] or (1, 1)
                    if low <= 0 <= high:
                        found.add((method, distance, name))
    return found
