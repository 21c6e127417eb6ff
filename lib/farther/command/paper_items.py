"""One table or figure of results, as `farther table` and `farther figure` print it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from farther.command.output import table as as_text
from farther.command.project import Project
from farther.errors import ParameterError
from farther.errors import choose as known_name
from farther.evaluation import plots
from farther.evaluation.files import RunFiles
from farther.evaluation.groups import GROUPS
from farther.metrics.catalogue import COMPARED, METRICS, Metric, metric_name
from farther.report.charts import results
from farther.report.charts.curves import SWEPT, RunCurves
from farther.report.charts.vega import Chart
from farther.report.results import Run, read_run, with_best
from farther.report.tables import ResultTable

#: Points of a curve in a figure.
POINTS = 400

#: Kinds that show one split.
OF_SPLIT = ("roc", "pr", "tau", "confidence")


def run_names(project: Project, names: Sequence[str] | None) -> list[str]:
    """The runs that a user names; without a name all, which then have one benchmark.

    Raises:
        ParameterError: a name is unknown, there is no run, or the runs have several benchmarks.
    """
    detectors = project.section("detectors")
    if not names:
        names = list(detectors) or [project.run(None)]
    chosen = [known_name("run", name, detectors) for name in names]
    benchmarks = {str(detectors[name].get("benchmark")): name for name in chosen}
    if len(benchmarks) > 1:
        listed = "; ".join(f"{name} is on {benchmark}" for benchmark, name in benchmarks.items())
        raise ParameterError(
            f"--run: name runs of one benchmark, whose splits are the columns; {listed}"
        )
    return chosen


def evaluated(project: Project, name: str) -> Run:
    """A run with its values.

    Raises:
        ParameterError: it is not evaluated yet.
    """
    run = read_run(name, project.params, project.artifacts)
    if not run.is_evaluated or run.description is None:
        raise ParameterError(f"run {name!r} has no results yet; `farther repro` computes them")
    return run


def result_table(
    runs: Sequence[Run],
    splits: Sequence[str] | None,
    methods: Sequence[str] | None,
    metrics: Sequence[str] | None,
) -> Any:
    """The table of some runs, splits, methods and metrics.

    Raises:
        ParameterError: a name is unknown, or no value is defined.
    """
    chosen_metrics = _metrics(runs, metrics)
    frames = []
    for run in runs:
        values = run.with_kind(run.values_of(chosen_metrics))
        frames.append(values.with_columns(detector=pl.lit(run.full_title)))
    cells = pl.concat(frames)
    if splits:
        known = {split.name for run in runs for split in run.splits}
        names = [known_name("split", name, sorted(known)) for name in splits]
        cells = cells.filter(pl.col("split").is_in(names))
    if methods:
        known = {name for run in runs for name in run.methods}
        names = [known_name("method", name, sorted(known)) for name in methods]
        cells = cells.filter(pl.col("method").is_in(names))
    if cells.is_empty():
        raise ParameterError("no value of these metrics is defined in these splits")

    labels = {"Method": "label"}
    if len(runs) > 1:
        labels = {"Detector": "detector", **labels}
    titles = ", ".join(run.title for run in runs)
    shown = ", ".join(metric.title for metric in chosen_metrics)
    return ResultTable(
        name=f"{runs[0].benchmark}-{'-'.join(metric.name for metric in chosen_metrics)}",
        caption=f"{runs[0].benchmark_title}: {shown} of {titles} (%).",
        labels=labels,
        metrics=tuple(chosen_metrics),
        cells=with_best(cells),
    )


def _metrics(runs: Sequence[Run], names: Sequence[str] | None) -> list[Metric]:
    """The metrics that a user names; by default those of unknown objects, or of detections.

    Raises:
        ParameterError: a metric is unknown, or is not computed per method and OOD split.
    """
    if names:
        metrics = [METRICS[metric_name(name)] for name in names]
    else:
        group = "ood" if all(run.whole_images for run in runs) else "open_set"
        metrics = [METRICS[name] for name in COMPARED if METRICS[name].group == group]
    for metric in metrics:
        if metric.group not in GROUPS:
            raise ParameterError(
                f"--metric: {metric.name} is not a metric of a method on an OOD split; "
                "`farther list metrics` has them by group"
            )
    return metrics


def for_terminal(table: Any) -> str:
    """A table for the terminal: one line per row, and a column per split and metric."""
    heads = list(table.labels)
    for split, metric in table.columns:
        heads.append(f"{split} {metric.title}")
    rows = []
    for row in table.rows:
        cells = []
        for cell in row["cells"]:
            mark = "*" if cell["is_best"] else ""
            cells.append(f"{cell['text']}{mark}")
        rows.append([*row["labels"], *cells])
    return f"{table.caption} * marks the best.\n\n{as_text(heads, rows, len(table.columns))}"


def chart_of(
    kind: str,
    run: Run,
    project: Project,
    split: str | None,
    methods: Sequence[str] | None,
    metric: str,
) -> Chart:
    """A figure of a run.

    Raises:
        ParameterError: a name is unknown, a split is missing, or there is nothing to show.
    """
    if kind in OF_SPLIT:
        run = _on_one_split(run, split)
    shown = run.methods
    if methods:
        shown = [known_name("method", name, run.methods) for name in methods]

    if kind == "outcomes":
        method = shown[0] if methods else run.shown_method(None)
        charts = _outcomes(run, method)
    else:
        charts = _curves(kind, run, project, shown, metric)
    if not charts:
        raise ParameterError(f"run {run.name!r} has nothing to show as {kind!r}")
    return charts[0]


def _on_one_split(run: Run, split: str | None) -> Run:
    """A run with one of its OOD test splits: the one that a user names, or the only one.

    Raises:
        ParameterError: the split is unknown, or none is named and there are several.
    """
    split_by_name = {test_split.name: test_split for test_split in run.splits}
    if split is None and len(split_by_name) > 1:
        raise ParameterError(f"--split: name one of {', '.join(split_by_name)}")
    if split is None:
        return run
    chosen = known_name("split", split, split_by_name)
    return replace(run, splits=(split_by_name[chosen],))


def _outcomes(run: Run, method: str) -> Sequence[Chart]:
    """The chart of outcomes; [] where no split has unknown objects."""
    return results.outcomes(run, method).charts


def _curves(
    kind: str, run: Run, project: Project, methods: Sequence[str], metric: str
) -> Sequence[Chart]:
    """Charts of a run's curves; [] where a file is absent.

    Raises:
        ParameterError: the metric is not one that is drawn over a threshold.
    """
    files = RunFiles(run.name, run.benchmark, project.artifacts)
    file_by_kind = {name: files.plot(name) for name in plots.SCHEMAS}
    curves = RunCurves(run, file_by_kind, methods)
    if kind in ("roc", "pr"):
        return curves.curves(kind, POINTS).charts
    if kind in ("tau", "confidence"):
        swept = known_name("metric", metric, SWEPT)
        return curves.sweep(kind, [swept]).charts
    if kind == "wilderness":
        return curves.wilderness().charts
    reliability = curves.reliability()
    if reliability is None:
        return []
    return [reliability]
